"""Settings of the autoscaler: its limits, the source of the run's rates, and how it sets the number
of generators.
"""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import NAMESPACE, OBJECT_NAME, Settings
from rollcast.config.connections import Port, Secret

_Name = Annotated[str, Field(pattern=OBJECT_NAME)]


class FleetScrape(Settings):
    kind: Literal["scrape"] = "scrape"
    """Read the metrics pages of trainer and generators: no Prometheus needed. http.token is
    presented to each."""
    trainer: str | None = None
    """Metrics page of trainer rank 0, as http://host:port/metrics. None = the one found in the run
    folder."""
    generators: str | None = None
    """host:port; every address that the name has is a generator, as a headless Service gives. None
    = those found in the run folder."""


class FleetPrometheus(Settings):
    kind: Literal["prometheus"] = "prometheus"
    """Read a Prometheus server's query API. It must scrape trainer and generators; deletion costs
    need the label `pod`."""
    url: str
    """Address of the server, as http://host:9090."""
    token: Secret | None = None
    """Bearer token. None = none."""
    namespace: Annotated[str, Field(pattern=NAMESPACE)] = ""
    """Only series with this label `namespace`: another one may have a run of the same name. The
    chart sets its own. Empty = whatever the label."""


class Autoscaler(Settings):
    mode: Literal["keda", "hpa", "controller"] = "keda"
    """Who changes the Deployment: keda = a ScaledObject that asks the external scaler, hpa = an HPA
    that reads rollcast_generators_desired, controller = the autoscaler itself."""
    source: Annotated[FleetScrape | FleetPrometheus, Field(discriminator="kind")] = FleetScrape()
    """Source of the run's rates."""
    every_seconds: Annotated[float, Field(gt=0)] = 15.0
    """Interval of measuring and deciding; the HPA asks as often."""
    bind: str = "127.0.0.1"
    """Address of the external scaler, of the probes and of /metrics; 0.0.0.0 in a pod."""
    http_port: Port = 8401
    """Port of /healthz, /readyz and /metrics. 0 = a free one."""
    grpc_port: Port = 8402
    """Port of the external scaler, served in mode keda. rpc.tls applies; no token, because KEDA
    presents none. 0 = a free one."""
    deployment: _Name | None = None
    """The generators' Deployment. Needed in mode controller. In the others None = pods are not
    marked, so that Kubernetes chooses which go."""
    namespace: _Name | None = None
    """Namespace of the Deployment. None = the pod's own."""
    trainer_jobs: Annotated[str, Field(min_length=1)] | None = None
    """Label selector of the trainer's Jobs, in the same namespace. Once they are complete the
    number is 0: KEDA and mode controller then let every generator go; an HPA keeps its minReplicas.
    None = generators stay when the run has ended."""
    replaced_jobs: Annotated[str, Field(min_length=1)] | None = None
    """Label selector of the trainer's Jobs, in the same namespace. If its pod has left on request,
    as for a drained node, the Job is deleted and created again: its own next pod would wait twice
    as long after each such move, up to ten minutes. Meanwhile the ConfigMap DEPLOYMENT-replaced-job
    holds it. None = it waits, because the autoscaler may not create Jobs."""
    least: Annotated[int, Field(ge=1)] = 1
    """Generators at least. Not 0: without a generator nothing can be measured and training
    waits."""
    most: Annotated[int, Field(ge=1)] = 64
    """Generators at most. More than the groups that the staleness window can hold are never asked
    for."""
    window_seconds: Annotated[float, Field(gt=0)] = 300.0
    """Time over which rates are measured. It should contain several optimizer steps, or chance
    decides."""
    start_up_seconds: Annotated[float, Field(ge=0)] = 180.0
    """Time from asking for a pod until it samples. Queue lengths are extrapolated this far."""
    stale_seconds: Annotated[float, Field(gt=0)] = 90.0
    """Without a complete measurement for longer, the number is held."""
    lower_after_seconds: Annotated[float, Field(ge=0)] = 600.0
    """A smaller number must have been enough for this long before the first pod is removed."""
    lower_every_seconds: Annotated[float, Field(ge=0)] = 120.0
    """Between one pod that goes and the next."""
    hpa_tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Relative change that the HPA ignores, 0.1 unless set otherwise. In modes keda and hpa the
    rise that is requested is just large enough to be obeyed. 0 if the HPA's behavior sets the
    tolerance 0 (Kubernetes 1.35)."""

    @property
    def ignored_change(self) -> float:
        """Relative change of the number that whoever changes the Deployment ignores."""
        return 0.0 if self.mode == "controller" else self.hpa_tolerance
