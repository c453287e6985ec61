"""A generator in a process of the cluster as a ``Sampler``: requests and weights go there, rollouts come back."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

from magcli.cluster.errors import MemberLost
from magcli.cluster.mailbox import Member
from magcli.cluster.runtime import Cluster
from magcli.cluster.types import ProcessKind, Resources, Surroundings
from magcli.errors import EnvironmentFault, MagError
from magcli.generate.remote.endpoint import open_endpoint
from magcli.generate.remote.wire import (
    Abort,
    Beat,
    Ended,
    Failed,
    Load,
    Loaded,
    SampleRequest,
    Scored,
    ScoreRequest,
    Starting,
    Transfer,
)
from magcli.generate.spec import Spec
from magcli.generate.types import Digests, Rollout, RunStep, Sampling, Scores, Sequences, TransferStep, Weights
from magcli.generate.vllm.transfer import Broadcast
from magcli.generate.weights.digest import WeightsFault, renamed
from magcli.generate.weights.matching import shared
from magcli.generate.weights.rank_transfer import Meeting, RankLink, WeightPlan
from magcli.run.tasks import end_all

START_SECONDS = 600.0
"""How long an engine may take to come up: a big model is read from a slow disk."""
LOAD_SECONDS = 600.0


class GeneratorDied(EnvironmentFault):
    """A generator process is gone; whatever it worked on has to be asked for again.

    ``is_reported``: its engine said why before it ended, instead of being killed.
    """

    is_reported = False


class RemoteSampler:
    """A generator and the requests that it works on. Open it with ``RemoteSampler.start``."""

    def __init__(self, spec: Spec, member: Member, host: str) -> None:
        self.spec, self.member = spec, member
        self._request_numbers = count()
        self._waiting: dict[int, asyncio.Queue[Rollout | Scores | Exception]] = {}
        self._loading: dict[int | TransferStep, asyncio.Future[Digests]] = {}
        self._host = host
        self._broadcast = _broadcast_to(spec, self.ask_step, host) if spec.transfer == "broadcast" else None
        self._link: RankLink | None = None
        # The version of the weights that a broadcast is bringing.
        self._coming = 0
        self._death: MagError | None = None
        self._listener = asyncio.create_task(self._listen())
        self.assigned = 0
        """Number of samples that the pool has given it and that have not ended."""
        self.version = 0
        self.arrived: Digests = {}
        """The digests of its newest weights, as they arrived."""
        self.seconds = 0.0
        """Time that the engine has worked so far."""
        self.load_seconds = 0.0
        """Time that its sequences have stood still for new weights so far."""

    @classmethod
    async def start(
        cls,
        cluster: Cluster,
        spec: Spec,
        resources: Resources,
        *,
        say: Callable[[str], None],
        show: Callable[[str], None] = lambda told: None,
    ) -> "RemoteSampler":
        """Start a generator where the cluster has room, and wait until its engine is up.

        ``show`` is told what it does meanwhile, ``say`` what is worth a line.

        Raises:
            GeneratorDied: it was killed before its engine was up.
            EnvironmentFault: the engine cannot be opened, or does not come up in time.
        """

        def heard(name: str, message: Any) -> None:
            if isinstance(message, Starting):
                (say if message.lasts else show)(f"{name}: {message.text}")

        variables = {"OMP_NUM_THREADS": str(spec.threads)} if spec.threads else {}
        kind = ProcessKind("generator", resources, Surroundings(variables=variables), START_SECONDS)
        try:
            member = await Member.start(cluster, kind, partial(open_endpoint, spec), say=say, heard=heard)
        except MemberLost as lost:
            raise GeneratorDied(str(lost)) from lost
        return cls(spec, member, cluster.own_address())

    @property
    def alive(self) -> bool:
        """Whether requests can be sent."""
        return self._death is None

    async def sample(
        self, prompt: Sequence[int], sampling: Sampling, *, seeds: Sequence[int]
    ) -> AsyncGenerator[Rollout, None]:
        """Sample one sequence a seed, yielded as each one ends; closing the iterator frees the group's slots.

        Raises:
            GeneratorDied: the process is gone; what was yielded before is good.
            MagError: what the engine says of the request.
        """
        request = next(self._request_numbers)
        waiting = self._waiting[request] = asyncio.Queue()
        left = len(seeds)
        try:
            self._tell(SampleRequest(request, tuple(prompt), sampling, tuple(seeds)))
            while left:
                item = await waiting.get()
                if isinstance(item, Exception):
                    raise item
                assert isinstance(item, Rollout)
                left -= 1
                yield item
        finally:
            del self._waiting[request]
            # Whoever asked has left early, and the engine would go on for nobody.
            if left and self.alive:
                self._tell(Abort(request))

    async def score(self, sequences: Sequences) -> Scores:
        """The log-probs of tokens after their contexts, at temperature 1; errors as ``sample``."""
        request = next(self._request_numbers)
        waiting = self._waiting[request] = asyncio.Queue()
        try:
            self._tell(ScoreRequest(request, sequences))
            answer = await waiting.get()
        finally:
            del self._waiting[request]
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, list)
        return answer

    async def load(self, weights: Weights, version: int) -> Digests:
        """Replace the weights between two decode steps; running sequences go on with their KV cache.

        Returns their digests as they arrived.

        Raises:
            WeightsFault: the weights do not fit the engine.
            GeneratorDied: the process is gone or does not take them in time.
        """
        if self._broadcast is None:
            with shared(weights) as file:
                self.arrived = await self._ask(Load(str(file.path), version), version)
        else:
            self._coming = version
            names = await self._send(self._broadcast, weights)
            # The engine digests tensors under the names under which they are sent.
            self.arrived = renamed(self.arrived, names)
        self.version = version
        return self.arrived

    @property
    def meeting(self) -> Meeting:
        """Where trainer ranks meet its engine."""
        return self._rank_link.meeting

    @property
    def _rank_link(self) -> RankLink:
        """The link to trainer ranks, made when it is first needed."""
        if self._link is None:
            by_nccl = self.spec.device.startswith("cuda") and self.spec.engine == "vllm"
            self._link = RankLink(self.ask_step, self._host, ranks=self.spec.tensor_parallel, by_nccl=by_nccl)
        return self._link

    async def take_from_ranks(self, plan: WeightPlan, started: "asyncio.Future[int]") -> None:
        """Take the weights that trainer ranks send; errors as ``load``.

        ``started`` has their version as soon as the ranks begin. Running sequences go on with their KV cache.
        """
        link = self._rank_link
        # Shielded: several members wait for the same future.
        version = self._coming = await asyncio.shield(started)
        with self._dying_of_errors():
            await link.receive(plan)
        self.arrived = renamed(self.arrived, plan.names)
        self.version = version

    async def ask_step(self, step: TransferStep, info: Any) -> None:
        """Have the generator do one step of a broadcast; with the last, the weights that come are in use."""
        self.arrived = await self._ask(Transfer(step, info, self._coming), step)

    async def _send(self, broadcast: "Broadcast", weights: Weights) -> Mapping[str, str]:
        """Broadcast weights; returns the names in ``weights`` of the names under which they are sent."""
        with self._dying_of_errors():
            return await broadcast.send(weights)

    @contextmanager
    def _dying_of_errors(self) -> Iterator[None]:
        """End the process when NCCL or gloo fails: it cannot be trusted to have its weights."""
        try:
            yield
        except MagError:
            raise
        except Exception as error:
            self.lacks_weights(f"{type(error).__name__}: {error}")
            assert self._death is not None
            raise self._death from error

    def lacks_weights(self, reason: str) -> None:
        """End the process because new weights did not reach it."""
        self._die(GeneratorDied(f"{self.member.name} died: new weights did not reach it: {reason}"))

    async def _ask(self, message: Load | Transfer, awaited: int | TransferStep) -> Digests:
        done = self._loading[awaited] = asyncio.get_running_loop().create_future()
        try:
            self._tell(message)
            async with asyncio.timeout(LOAD_SECONDS):
                digests: Digests = await done
                return digests
        except TimeoutError:
            self._die(GeneratorDied(f"{self.member.name} died: it did not take new weights in {LOAD_SECONDS:g} s"))
            assert self._death is not None
            raise self._death from None
        finally:
            self._loading.pop(awaited, None)

    async def close(self) -> None:
        """End the process."""
        self._die(MagError("the generator has been closed"))
        await end_all([self._listener])

    def _tell(self, message: object) -> None:
        if self._death is not None:
            raise self._death
        self.member.tell(message)

    async def _listen(self) -> None:
        try:
            while self.alive:
                for message in await self.member.next_messages():
                    self._take(message)
        except MemberLost as lost:
            self._die(GeneratorDied(str(lost)))
        except MagError as error:
            self._die(error)

    def _take(self, message: Any) -> None:
        match message:
            case Ended(request, rollout, seconds):
                self.seconds = seconds
                self._answer(request, rollout)
            case Scored(request, scores):
                self._answer(request, scores)
            case Failed(None, error):
                self._die_of(error)
            case Failed(int(request), error):
                self._answer(request, error)
            case Beat(seconds):
                self.seconds = seconds
            case Loaded(what, load_seconds, arrived):
                self.load_seconds = load_seconds
                # Nobody waits any more after a timeout.
                if loading := self._loading.get(what):
                    loading.set_result(arrived)

    def _answer(self, request: int, result: Rollout | Scores | Exception) -> None:
        """Hand a result to whoever waits for it; nobody does after an abort."""
        if waiting := self._waiting.get(request):
            waiting.put_nowait(result)

    def _die_of(self, error: Exception) -> None:
        """End the process because its engine has failed."""
        if isinstance(error, WeightsFault):  # a replacement would fail in the same way
            self._die(error)
            return
        death = GeneratorDied(f"{self.member.name} died: {error}")
        death.is_reported = True
        self._die(death)

    def _die(self, reason: MagError) -> None:
        """End the process, once, and tell everyone who waits."""
        if self._death is not None:
            return
        # First of all, so that nothing more is sent to it.
        self._death = reason
        self.member.kill()
        # What sends to it would wait for ever.
        if self._broadcast is not None:
            self._broadcast.abort()
        if self._link is not None:
            self._link.abort()
        for waiting in self._waiting.values():
            waiting.put_nowait(reason)
        for loading in self._loading.values():
            if not loading.done():
                loading.set_exception(reason)
                loading.exception()  # nobody may wait for it


def _broadcast_to(spec: Spec, run_step: RunStep, host: str) -> "Broadcast":
    # Only vLLM receives by NCCL. The embedded engine is sent copies in host memory, over gloo.
    source = spec.source if spec.engine == "vllm" else "cpu"
    return Broadcast(run_step, spec.model.outline, source, spec.torch_dtype, host, ranks=spec.tensor_parallel)
