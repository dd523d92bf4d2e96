import os

from rollcast.telemetry.process_end import end

if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch is imported: a replay needs no GPU
    from rollcast.trainer.replay.program import main

    end(main())
