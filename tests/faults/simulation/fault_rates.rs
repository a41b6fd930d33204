//! The fault classes of a seed and their rates. Each seed draws its own, so that rare combinations of faults occur too.
//! In a calm phase no fault is injected.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::{Duration, Instant};

use crate::simulation::chance::Chance;

macro_rules! faults {
    ($($name:ident = $code:literal $per:literal,)*) => {
        /// A class of faults; beside it its number in the catalogue, and its middle rate in a million occasions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Fault { $($name,)* }

        impl Fault {
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// Where the catalogue has it.
            pub(crate) const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            const fn rate(self) -> u32 {
                match self { $(Self::$name => $per,)* }
            }
        }
    };
}

faults! {
    OperatorCrashes = "F1 F2" 1_500,
    OperatorPauses = "F3 F4" 600,
    AgentCrashes = "F1" 800,
    CommandDies = "F1" 8_000,
    AgentPauses = "F3" 150,
    AgentPartition = "F18" 200,
    StoreFails = "F9 F30" 8_000,
    StoreLosesAnswer = "F8 F9" 20_000,
    StoreAppliesLate = "F9 F12" 8_000,
    StoreContended = "F10" 15_000,
    StoreThrottles = "F11" 10_000,
    StoreAway = "F22" 1_500,
    StoreSlow = "F30" 5_000,
    ListInPieces = "F7 F12" 1_000_000,
    WatchLags = "F7" 300_000,
    WatchShuffles = "F7" 100_000,
    WatchBreaks = "F7" 3_000,
    WatchStalls = "F7" 1_500,
    QueueLoses = "F5" 60_000,
    QueueDoubles = "F5" 60_000,
    QueueReorders = "F5" 60_000,
    QueueFails = "F5" 30_000,
    QueueGarbage = "F6" 20_000,
    ForeignMessage = "F6" 20_000,
    LaunchRefused = "F13" 150_000,
    LaunchPartial = "F13" 200_000,
    LaunchThrottled = "F11 F13" 100_000,
    LaunchLosesAnswer = "F9 F13" 150_000,
    LaunchAppliesLate = "F9 F14" 80_000,
    ProviderFails = "F11 F14" 50_000,
    ProviderForgetsSome = "F14" 80_000,
    NeverBoots = "F15" 80_000,
    BootsSlowly = "F15" 120_000,
    BootFails = "F15" 80_000,
    MachineDies = "F16 F17" 12_000,
    SpotNotice = "F16" 12_000,
    ClocksDiffer = "F19" 1_000_000,
    ClockSteps = "F19" 3_000,
    GitHubAway = "F20" 3_000,
    GitHubFails = "F20" 40_000,
    GitHubThrottles = "F21" 20_000,
    GitHubRefuses = "F20" 15_000,
    GitHubLosesAnswer = "F20" 40_000,
    GitHubBusy = "F20" 150_000,
    RegistrationFails = "F20" 80_000,
    RunnerDies = "F16" 50_000,
    CleaningFails = "S23" 50_000,
    RunEndsUnreleased = "F28" 200_000,
    SubmittedTwice = "F28" 200_000,
    ReleasedEarly = "F28" 200_000,
    PoolChanges = "F27" 8_000,
    PoolMadeAnew = "F27" 4_000,
    PoisonRecord = "F24" 3_000,
    RecordUnreadable = "F24 F25" 12_000,
    JobsRunAgain = "F28" 400_000,
    VersionsAppear = "F20" 12_000,
    MachineHeld = "F28" 30_000,
}

/// The faults of one seed.
pub(crate) struct FaultRates {
    rates: BTreeMap<Fault, u32>,
    fired: Mutex<BTreeMap<Fault, u64>>,
    until: Mutex<BTreeMap<Fault, Instant>>,
    calm: AtomicBool,
}

impl FaultRates {
    /// Draws which faults there are and how often; whether machines are held from numbers of its own, so that a seed
    /// without holds is what it was before.
    pub(crate) fn draw(chance: &Chance, holds: &Chance) -> Self {
        let share = *chance.one(&[15, 30, 50]);
        let mut rates = BTreeMap::new();
        for fault in Fault::ALL {
            let chance = if *fault == Fault::MachineHeld { holds } else { chance };
            let (on, factor) = (chance.percent(share), *chance.one(&[1, 4, 12]));
            if on {
                rates.insert(*fault, (fault.rate() / 4).saturating_mul(factor).min(1_000_000));
            }
        }
        let (fired, until) = (Mutex::default(), Mutex::default());
        Self { rates, fired, until, calm: AtomicBool::new(false) }
    }

    /// The same, with this fault at each of its occasions.
    pub(crate) fn always(mut self, fault: Fault) -> Self {
        self.rates.insert(fault, 1_000_000);
        self
    }

    /// These faults and no others, often.
    pub(crate) fn only(faults: &[Fault]) -> Self {
        let rates = faults.iter().map(|fault| (*fault, 200_000)).collect();
        Self { rates, fired: Mutex::default(), until: Mutex::default(), calm: AtomicBool::new(false) }
    }

    /// These faults and no others, as often as in other worlds: work is done between them.
    pub(crate) fn among(faults: &[Fault], chance: &Chance) -> Self {
        let drawn = |fault: &Fault| (*fault, fault.rate() / 4 * *chance.one(&[1, 4, 12]));
        Self { rates: faults.iter().map(drawn).collect(), ..Self::only(&[]) }
    }

    /// Whether it happens now.
    pub(crate) fn strikes(&self, fault: Fault, chance: &Chance) -> bool {
        let Some(rate) = self.rates.get(&fault).filter(|_| !self.calm()) else { return false };
        let strikes = chance.in_a_million(*rate);
        if strikes {
            self.note(fault);
        }
        strikes
    }

    /// Whether nothing ever goes wrong.
    pub(crate) fn none(&self) -> bool {
        self.rates.is_empty()
    }

    /// Whether this seed has it at all.
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.rates.contains_key(&fault)
    }

    pub(crate) fn note(&self, fault: Fault) {
        *self.fired.lock().unwrap().entry(fault).or_default() += 1;
    }

    /// Lets a fault last.
    pub(crate) fn begin(&self, fault: Fault, length: Duration) {
        self.until.lock().unwrap().insert(fault, Instant::now() + length);
    }

    /// Whether a lasting fault is on.
    pub(crate) fn lasts(&self, fault: Fault) -> bool {
        !self.calm() && self.until.lock().unwrap().get(&fault).is_some_and(|until| Instant::now() < *until)
    }

    pub(crate) fn calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    /// From now on nothing goes wrong any more.
    pub(crate) fn clear_up(&self) {
        self.calm.store(true, Ordering::SeqCst);
    }

    pub(crate) fn fired(&self) -> BTreeMap<Fault, u64> {
        self.fired.lock().unwrap().clone()
    }
}
