"""Models that are built on the host once, from which the workers of an accelerator are
forked.

A fork server of each side builds its model before any process opens the device, so that
a start is a fork, a context and a copy. The model is used if it equals one that was
built for the device.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from perfgate.conductor.workers.checkout import Checkout, ServerKey
from perfgate.conductor.workers.loading import LoadingWorker, WorkerPlan
from perfgate.conductor.workers.worker import (
    ForkedProcess,
    ForkServer,
    Say,
    Worker,
    WorkerError,
    WorkerSource,
)
from perfgate.config import WorkloadReference
from perfgate.document.message import Message, as_message
from perfgate.document.run import ErrorDetail
from perfgate.locale import Activity
from perfgate.protocol import ServerFailed, Signature, SignatureRequest, server_decoder
from perfgate.system.interrupts import safe_point

if TYPE_CHECKING:
    from perfgate.conductor.workers.bench import Bench


class HostBuilds:
    """The workload that the fork servers of a bench build on the host, for each of its
    checkouts.

    ``seconds_of_copy`` is how long a worker takes to copy such a model to the device;
    None as long as none does.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._references: dict[Checkout, WorkloadReference] = {}
        self._are_confirmed = False
        self.seconds_of_copy: float | None = None

    @property
    def have_begun(self) -> bool:
        return bool(self._references)

    @property
    def are_used(self) -> bool:
        """Whether workers are forked from what was built."""
        return self._are_confirmed

    def begin(self, checkout: Checkout, reference: WorkloadReference) -> None:
        """Begin to build a workload; its workers are forked from there once ``confirm``
        has compared it.
        """
        self._references[checkout] = reference
        self._host_of(checkout)

    def confirm(self, signatures: Mapping[Checkout, Signature]) -> Message | None:
        """Compare the models with those that were built for the device, by their
        signatures; from now on they are used.

        A worker is asked for those that are absent. Returns the reason if the models
        are not used: either all checkouts have theirs or none has.
        """
        for checkout in self._references:
            reason = self._difference(checkout, signatures.get(checkout))
            if reason is not None:
                self.forget()
                return reason
        self._are_confirmed = True
        return None

    def forget(self) -> None:
        """End everything that was built."""
        self._references.clear()
        self._are_confirmed = False
        self.seconds_of_copy = None
        for server in self._bench.servers.all():
            server.close_hosts()

    def server_of(
        self, checkout: Checkout, reference: WorkloadReference, server: ForkServer
    ) -> WorkerSource:
        """The server that forks workers with the model of a checkout, once it is built;
        ``server`` if workers build theirs.
        """
        if not self._are_confirmed or self._references.get(checkout) != reference:
            return server
        host = self._host_on(server, checkout)
        if host.wait_built(timeout=self._bench.config.measure.load_timeout):
            return host
        return server

    def are_built_on(self, key: ServerKey, server: ForkServer) -> bool:
        """Whether a server has built the models of its checkouts, or cannot; begins to
        build them.
        """
        if not self._are_confirmed:
            return True
        are_built = True
        for checkout in self._references:
            if checkout.server == key:
                host = self._host_on(server, checkout)
                are_built &= host.is_built() or host.error is not None
        return are_built

    def _difference(
        self, checkout: Checkout, signature: Signature | None
    ) -> Message | None:
        """Why the model that was built on the host is not used; None if it equals the
        other.
        """
        host, reference = self._host_of(checkout), self._references[checkout]
        if not host.wait_built(timeout=self._bench.config.measure.load_timeout):
            if host.error is None:
                return Message("workload.host-build-slow")
            return as_message(host.error.message)
        try:
            signature = signature or self._signature_on_device(checkout, reference)
            plan = WorkerPlan(
                checkout, reference, self._bench.cpus, reference.name, host=host
            )
            with self._bench.loading(plan) as copying:
                seconds = copying.wait().seconds
                copy = self.signature_of(copying)
        except WorkerError as error:
            return as_message(error.detail.message)
        self.seconds_of_copy = max(seconds, self.seconds_of_copy or 0.0)
        return difference_of(signature, copy)

    def _signature_on_device(
        self, checkout: Checkout, reference: WorkloadReference
    ) -> Signature:
        """The signature of a model that a worker builds for the device; it may have
        loaded ahead.
        """
        bench = self._bench
        plan = WorkerPlan(checkout, reference, bench.cpus, reference.name)
        if bench.has_ahead(checkout, reference):
            try:
                with bench.loading(plan) as loading:
                    return self.signature_of(loading)
            except WorkerError as error:
                if not error.detail.is_out_of_memory:
                    raise
        with bench.loading(plan) as loading:
            return self.signature_of(loading)

    def signature_of(self, loading: LoadingWorker) -> Signature:
        loading.wait()
        doing = Activity("comparing the model of {name}", name=loading.name)
        return loading.worker.ask(SignatureRequest(), Signature, doing=doing)

    def _host_of(self, checkout: Checkout) -> HostServer:
        return self._host_on(self._bench.servers.get(checkout.server), checkout)

    def _host_on(self, server: ForkServer, checkout: Checkout) -> HostServer:
        """The server that builds the model of a checkout, forked from this one."""
        host = server.hosts.get(checkout)
        if not isinstance(host, HostServer):
            host = server.hosts[checkout] = self._bench.fork_host(
                server, checkout, self._references[checkout]
            )
        return host


def difference_of(device: Signature, host: Signature) -> Message | None:
    """How a model that was built on the host differs from one built for the device;
    None if it does not.
    """
    if device.model != host.model:
        return Message(
            "workload.other-model", {"device": device.model, "host": host.model}
        )
    for name in sorted(device.tensors.keys() | host.tensors.keys()):
        if device.tensors.get(name) != host.tensors.get(name):
            return Message("workload.other-tensor", {"name": name})
    if device.operators != host.operators:
        return Message("workload.other-operators")
    return None


class HostServer(WorkerSource):
    """The server in the process of ``worker``, which builds its workload in the
    background.

    ``error`` is why it has no model, once that is known. It is closed with the worker.
    """

    def __init__(self, worker: Worker, *, folder: Path, say: Say) -> None:
        super().__init__(
            ForkedProcess(worker),
            worker.connection,
            worker.inbox,
            folder,
            worker.log,
            say,
        )
        self._host = worker
        self._ready = False
        self.error: ErrorDetail | None = None

    def close(self) -> None:
        if not self._ready:
            # User code builds, and would not notice that the connection ends.
            self._kill()
        super().close()
        self._host.close()

    def is_built(self) -> bool:
        """Whether the model is there, without waiting."""
        return self._note(0.0)

    def wait_built(self, *, timeout: float) -> bool:
        """Wait until the model is there; False if it cannot be built, or takes too
        long.
        """
        deadline = time.monotonic() + timeout
        while (
            self.error is None and not self._note(0.1) and time.monotonic() < deadline
        ):
            safe_point()
        return self._ready

    def _note(self, seconds: float) -> bool:
        if self._ready or self.error is not None:
            return self._ready
        try:
            received = self._poll(seconds)
        except WorkerError as error:
            self.error = error.detail
            return False
        if received is None:
            return False
        message = server_decoder.decode(received)
        if isinstance(message, ServerFailed):
            self.error = message.error
        self._ready = self.error is None
        return self._ready
