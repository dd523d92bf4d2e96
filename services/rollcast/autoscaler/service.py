"""The autoscaler's process.

start: mode controller refuses if others scale the Deployment too; show the present number; serve
       HTTP and, for KEDA, gRPC
loop:  measure, decide; before a fall pods are marked, then the number is shown, and in mode
       controller applied
end:   once the trainer's Jobs are complete the number is 0, until there is another Job
stop:  at SIGTERM or SIGINT; the Deployment keeps the number it has
"""

import time
from contextlib import ExitStack

from rollcast.autoscaler.api_server import KubernetesApiError, connect, own_namespace
from rollcast.autoscaler.board import DecisionBoard
from rollcast.autoscaler.deployment import Deployment
from rollcast.autoscaler.keda import MAX_CALLS, ExternalScaler
from rollcast.autoscaler.loop import Loop
from rollcast.autoscaler.sources import open_source
from rollcast.config.autoscaler import Autoscaler
from rollcast.config.connections import Rpc
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.connections.grpc import start_server
from rollcast.connections.http import Heartbeat, HttpServer, listen, service_routes
from rollcast.connections.port_files import publish_port
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.stop_signal import StopSignal
from rollcast.wire.externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server

log = get_logger()


def serve(config: RunConfig) -> int:
    """Run until a signal; returns the exit code.

    Raises UserError if a port is taken, or the Deployment cannot be scaled or is scaled by others.
    """
    stop = StopSignal()
    settings = config.autoscaler
    deployment = open_deployment(settings)
    board = DecisionBoard()
    exporter = Exporter(config.run)
    # A turn reads pages and speaks to Kubernetes; each call of it has a deadline
    heartbeat = Heartbeat(settings.every_seconds + 300.0)
    source = open_source(settings.source, config.http, config.run, config.run_folder)
    loop = Loop(config, source, deployment, board, exporter)
    with ExitStack() as opened:
        opened.callback(loop.close)
        listener = opened.enter_context(
            listen(settings.bind, settings.http_port, setting="autoscaler.http_port")
        )
        loop.begin()
        if settings.mode == "keda":
            # KEDA presents certificates, never a token.
            rpc = Rpc(bind=settings.bind, port=settings.grpc_port, token=None, tls=config.rpc.tls)
            rpc_server, rpc_port = start_server(
                rpc,
                lambda server: add_ExternalScalerServicer_to_server(ExternalScaler(board), server),  # type: ignore[no-untyped-call]
                setting="autoscaler.grpc_port",
                max_calls=MAX_CALLS,
            )
            opened.callback(lambda: rpc_server.stop(grace=1.0).wait(2.0))
            publish_port(config.run_folder, "autoscaler-grpc", rpc_port)
        served = config.http.model_copy(update={"bind": settings.bind})
        http = HttpServer(service_routes(exporter.render, loop.ready, heartbeat), listener, served)
        http.start()
        opened.callback(http.stop)
        opened.callback(board.close)
        publish_port(config.run_folder, "autoscaler", http.port)
        log.info("autoscaler serves", mode=settings.mode, http=http.port)
        while True:
            heartbeat.beat()
            next_turn_seconds = time.monotonic() + settings.every_seconds
            loop.turn()
            if stop.wait(max(0.0, next_turn_seconds - time.monotonic())):
                return 0


def open_deployment(settings: Autoscaler) -> Deployment | None:
    """The Deployment that the settings name, or None.

    Raises UserError if Kubernetes cannot be reached, or, in mode controller, others scale it.
    """
    if settings.deployment is None:
        return None
    deployment = Deployment(
        connect("autoscaler.deployment"), own_namespace(settings.namespace), settings.deployment
    )
    if settings.mode != "controller":
        return deployment
    try:
        rivals = deployment.rivals()
        deployment.replicas()
    except KubernetesApiError as error:
        raise UserError(
            f"autoscaler.mode = controller, deployment = {settings.deployment}: {error}"
        ) from error
    if rivals:
        raise UserError(
            f"autoscaler.mode = controller: {' and '.join(rivals)} scales Deployment "
            f"{settings.deployment} too; delete it, or set the mode to keda or hpa"
        )
    return deployment
