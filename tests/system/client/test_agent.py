"""The client's agent, record by record: golden instances are laid before it, and its own record is looked at as it is stored."""

import unittest

import place
from agent import Agent, Failed, Work
from table import ConditionFailed, NewerSchema, TableError, decode, encode

yard: place.Yard
ARN = decode(place.golden("instance-running")["instanceArn"])
CREATED, GRACE = 120.0, 10.0


def setUpModule() -> None:
    global yard
    yard = place.Yard()


def tearDownModule() -> None:
    yard.end()


class Said(Work):
    """Work that is noted; each step whose name is in `failing` fails."""

    def __init__(self, *failing: str):
        self.failing, self.done = failing, []

    def note(self, step: str, of: str = "") -> None:
        self.done.append(f"{step} {of}".strip())
        if step in self.failing:
            raise Failed(f"cannot {step}")

    def boot(self) -> None:
        self.note("boot")

    def register(self, instance: dict) -> None:
        self.note("register", instance["claimId"])

    def stop(self, claim: str) -> None:
        self.note("stop", claim)

    def clean(self, claim: str) -> None:
        self.note("clean", claim)


class Clock:
    """Seconds since the machine's boot."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class OnATable(unittest.TestCase):
    """On a table that no operator looks at; the test writes the instance as an operator does."""

    def setUp(self) -> None:
        self.table, self.clock = yard.scratch_table(), Clock()

    def agent(self, *failing: str) -> Agent:
        self.work = Said(*failing)
        return Agent(self.table, ARN, CREATED, GRACE, self.work, self.clock)

    def born(self) -> None:
        self.put(place.golden("agent-born"))

    def put(self, item: dict) -> None:
        self.table.call("PutItem", {"Item": item})

    def lay(self, name: str, **more) -> str:
        """A golden instance; the claim that it names."""
        item = place.golden(name) | {attribute: encode(value) for attribute, value in more.items()}
        self.put(item)
        return decode(item["claimId"])

    def stored(self) -> dict:
        """The agent's record as it is on the wire."""
        key = {"pk": encode(f"agent#{ARN}"), "sk": encode("agent")}
        return self.table.call("GetItem", {"Key": key, "ConsistentRead": True}).get("Item", {})

    def says(self, agent: Agent) -> tuple[str, str]:
        """What the agent's record attributes after one look and one heartbeat."""
        before = self.stored()
        self.assertTrue(agent.reconcile())
        self.assertTrue(agent.heartbeat())
        item = self.stored()
        self.assertEqual(decode(item["heartbeatSeq"]), decode(before["heartbeatSeq"]) + 1)
        forms = {name: list(value) for name, value in (place.golden("agent-speaking") | place.golden("agent-born")).items()}
        self.assertEqual({name: list(value) for name, value in item.items()}, {name: forms.get(name) for name in item})
        record = {name: decode(value) for name, value in item.items()}
        return record.get("signal", ""), record.get("signalClaimId", "")

    def test_each_golden_instance_gets_the_signal_that_is_true_of_it(self):
        for name, signal in (
            ("instance-created-warm", "UD_OK"),
            ("instance-created-bound", "UD_REG_OK"),
            ("instance-claimed", "UD_REG_OK"),
            ("instance-running", "UD_REG_OK"),
            ("instance-idle-cleaning", "UD_REMOVE_REG_OK"),
            ("instance-idle-pooled", "UD_REMOVE_REG_OK"),
        ):
            with self.subTest(name):
                self.born()
                claim = self.lay(name)
                self.assertEqual(self.says(self.agent()), (signal, claim))

    def test_a_machine_goes_through_two_claims_and_repeats_what_is_true(self):
        self.born()
        agent = self.agent()
        self.lay("instance-created-warm")
        self.assertEqual(self.says(agent), ("UD_OK", ""))
        for claim, run in (("c1", "7"), ("c2", "8")):
            self.lay("instance-claimed", claimId=claim, runId=run)
            self.assertEqual(self.says(agent), ("UD_REG_OK", claim))
            self.assertEqual(decode(self.stored()["signalRunId"]), run)
            self.lay("instance-running", claimId=claim, runId=run)
            self.assertEqual(self.says(agent), ("UD_REG_OK", claim))
            self.lay("instance-idle-cleaning", claimId=claim)
            self.assertEqual(self.says(agent), ("UD_REMOVE_REG_OK", claim))
            self.assertNotIn("signalRunId", self.stored())
            self.lay("instance-idle-pooled", claimId=claim)
            self.assertEqual(self.says(agent), ("UD_REMOVE_REG_OK", claim))
        steps = [f"{step} {claim}" for claim in ("c1", "c2") for step in ("register", "stop", "clean")]
        self.assertEqual(self.work.done, ["boot", *steps])

    def test_a_claim_that_another_followed_is_ended_first(self):
        self.born()
        agent = self.agent()
        self.lay("instance-running", claimId="c1")
        self.says(agent)
        self.lay("instance-claimed", claimId="c2")
        self.assertEqual(self.says(agent), ("UD_REG_OK", "c2"))
        self.assertEqual(self.work.done[2:], ["stop c1", "clean c1", "register c2"])

    def test_a_step_that_fails_is_signalled_with_its_words(self):
        for step, names, signals in (
            ("boot", ("instance-created-warm", "instance-created-bound"), ("UD_FAILED", "UD_FAILED")),
            ("register", ("instance-claimed", "instance-idle-cleaning"), ("UD_REG_FAILED", "UD_REMOVE_REG_OK")),
            ("clean", ("instance-claimed", "instance-idle-cleaning"), ("UD_REG_OK", "UD_REMOVE_REG_FAILED")),
        ):
            with self.subTest(step):
                self.born()
                agent = self.agent(step)
                for name, signal in zip(names, signals):
                    claim = self.lay(name, claimId="" if step == "boot" and name.endswith("warm") else "c1")
                    said = "" if signal == "UD_FAILED" else claim
                    self.assertEqual(self.says(agent), (signal, said))
                    self.assertEqual(self.says(agent), (signal, said))
                    detail = self.stored().get("signalDetail")
                    self.assertEqual(detail, encode(f"cannot {step}") if "FAILED" in signal else None)
                self.assertEqual(len(self.work.done), len(set(self.work.done)), "a step was taken twice")

    def test_a_claim_waits_for_what_its_registration_needs(self):
        self.born()
        agent = self.agent()
        self.lay("instance-created-bound", claimId="c1")
        self.work.can_register = lambda instance: "registration" in instance
        self.assertEqual(self.says(agent), ("UD_OK", ""))
        self.assertEqual(self.says(agent), ("UD_OK", ""))
        self.lay("instance-created-bound", claimId="c1", registration="sealed")
        self.work.attributes = lambda: {"runnerId": 17, "runnerName": "runyard-c1", "publicKey": "a key"}
        self.assertEqual(self.says(agent), ("UD_REG_OK", "c1"))
        self.assertEqual(self.stored()["runnerId"], encode(17))
        self.work.attributes = lambda: {"publicKey": "a key"}
        self.assertEqual(self.says(agent), ("UD_REG_OK", "c1"))
        self.assertFalse({"runnerId", "runnerName"} & set(self.stored()))

    def test_a_held_machine_is_stopped_once_and_says_nothing_new(self):
        self.born()
        agent = self.agent()
        self.lay("instance-running", claimId="c1")
        self.says(agent)
        self.lay("instance-held", claimId="c1")
        for _ in range(2):
            self.assertEqual(self.says(agent), ("UD_REG_OK", "c1"))
        self.assertEqual(self.work.done[2:], ["stop c1"])
        # A warm one that is held while it boots tells all the same that it has booted.
        self.born()
        self.lay("instance-created-warm", hold={"by": "ada", "until": "2026-01-02T04:00:00Z"})
        self.assertEqual(self.says(self.agent()), ("UD_OK", ""))

    def test_what_cannot_be_read_and_what_is_newer_is_no_command(self):
        self.born()
        agent = self.agent()
        self.lay("instance-running", claimId="c1")
        self.says(agent)
        for more in ({"schema": 2}, {"threshold": "soon"}, {"runId": 7}, {"state": "Idle"}, {"runId": "9", "claimId": ""}):
            with self.subTest(more):
                self.lay("instance-idle-cleaning", **{"claimId": "c1"} | more)
                self.assertEqual(self.says(agent), ("UD_REG_OK", "c1"))
        self.put(place.golden("instance-idle-cleaning") | {"claimId": {"NULL": True}})
        self.assertEqual(self.says(agent), ("UD_REG_OK", "c1"))
        self.assertEqual(self.work.done, ["boot", "register c1"])

    def test_an_agent_whose_record_is_gone_writes_none(self):
        agent = self.agent()
        self.lay("instance-created-warm")
        self.assertTrue(agent.reconcile())
        self.assertFalse(agent.heartbeat())
        self.assertEqual(self.stored(), {})

    def test_a_terminated_record_ends_the_machine(self):
        self.born()
        for name in ("instance-terminated", "instance-orphan"):
            with self.subTest(name):
                self.put(place.golden(name) | {"pk": encode(f"instance#{ARN}")})
                agent = self.agent()
                agent.run(heartbeat=1, poll=0)
                self.assertEqual((self.work.done, self.stored()), ([], place.golden("agent-born")))


class Orders:
    """A table that attributes these instances, one after the other, and keeps what is written."""

    def __init__(self, *shown):
        self.shown, self.written = list(shown), []

    def get(self, pk: str, sk: str):
        shown = self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]
        if isinstance(shown, Exception):
            raise shown
        return shown

    def update(self, pk: str, sk: str, expects: dict, *_) -> None:
        self.written.append((pk, sk, expects))


class Deadlines(unittest.TestCase):
    """The deadline is counted by its length on the machine's own clock; its times are the operator's."""

    def agent(self, *shown) -> tuple[Agent, Clock]:
        clock = Clock()
        return Agent(Orders(*shown), ARN, CREATED, GRACE, Said(), clock), clock

    def instance(self, minute: int, seconds: int) -> dict:
        """A pooled machine with a deadline of that length, set at that minute of an operator's clock of its own."""
        since = f"2020-01-01T00:{minute:02}:00Z"
        until = f"2020-01-01T00:{minute:02}:{seconds:02}.000Z"
        return {"state": "idle", "runId": "", "claimId": "", "threshold": until, "thresholdSetAt": since}

    def test_an_agent_that_never_saw_a_record_waits_for_the_boot_deadline(self):
        for shown in (None, TableError("out of reach"), NewerSchema("for others")):
            agent, clock = self.agent(shown)
            clock.now += CREATED - 1
            self.assertTrue(agent.reconcile())
            clock.now += 1
            self.assertFalse(agent.reconcile())

    def test_a_deadline_counts_from_its_first_sight_and_keeps_its_grace(self):
        agent, clock = self.agent(self.instance(0, 30), self.instance(0, 30), None)
        self.assertTrue(agent.reconcile())
        clock.now += 20
        self.assertTrue(agent.reconcile())
        clock.now += 30 - 20 + GRACE - 1
        self.assertTrue(agent.reconcile())
        clock.now += 1
        self.assertFalse(agent.reconcile())

    def test_it_reads_once_more_before_it_ends_itself(self):
        first, renewed = self.instance(0, 30), self.instance(1, 30)
        agent, clock = self.agent(first, TableError("out of reach"), renewed, renewed, {"state": "terminated"})
        beats = []

        def beat() -> bool:
            beats.append(clock.now)
            clock.now += 30 + GRACE
            return True

        agent.heartbeat = beat
        agent.run(heartbeat=0, poll=0)
        # The second look found the deadline over, and the next one found it renewed.
        self.assertEqual(beats, [1000.0, 1000.0 + 30 + GRACE])

    def test_a_signal_is_written_at_once_and_a_heartbeat_in_its_time(self):
        instance = self.instance(0, 30)
        agent, clock = self.agent(instance, instance, instance, instance, {"state": "terminated"})
        written = []
        agent.table.update = lambda *given: written.append((clock.now, given[3]["signal"]))
        look = agent.reconcile

        def later() -> bool:
            clock.now += 4
            return look()

        agent.reconcile = later
        agent.run(heartbeat=8, poll=0)
        self.assertEqual(written, [(1004.0, "UD_OK"), (1012.0, "UD_OK")])

    def test_what_could_not_be_written_is_written_at_the_next_look(self):
        instance = self.instance(0, 30)
        agent, _ = self.agent(instance, instance, instance, {"state": "terminated"})
        outcomes = iter([TableError("out of reach"), ConditionFailed("UpdateItem"), None])
        written = []

        def update(*given) -> None:
            if outcome := next(outcomes):
                raise outcome
            written.append(given)

        agent.table.update = update
        agent.run(heartbeat=1000, poll=0)
        self.assertEqual(len(written), 1)


if __name__ == "__main__":
    unittest.main()
