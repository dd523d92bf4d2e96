"""The episodes of a step in words, as terminal and page say them."""

from rollcast.runfolder.records import StepRecord


def episodes_in_words(record: StepRecord) -> tuple[str, ...]:
    """Length and time of a batch's episodes; empty without any."""
    if record.episode_turns_mean is None or record.episode_calls_mean is None:
        return ()
    words = [
        (
            f"{record.episode_turns_mean:.1f} turns and {record.episode_calls_mean:.1f} calls an "
            "episode"
        )
    ]
    if record.malformed_calls_share is not None:
        words.append(f"{record.malformed_calls_share:.1%} of the calls malformed")
    if record.environment_seconds_share is not None:
        words.append(f"{record.environment_seconds_share:.0%} of their time in environments")
    for environment, metrics in record.environment_metrics.items():
        numbers = [f"{name} {value:.3g}" for name, value in list(metrics.items())[:4]]
        words.append(f"{environment}: {', '.join(numbers)}")
    return tuple(words)
