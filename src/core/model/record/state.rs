//! The words of the contract: states, signals, usage classes, reasons. Each is spelled in exactly one place.

/// Declares an enum of contract words with its text form, used by records, tables and metrics alike.
#[macro_export]
#[doc(hidden)]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// Every value, in the contract's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the contract's word; also the value of the metrics' labels.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::model::FieldError;
            fn from_str(value: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|w| w.as_str() == value).ok_or_else(|| {
                    let known = Self::ALL.iter().map(|w| w.as_str()).collect::<Vec<_>>().join(", ");
                    $crate::model::FieldError::new(stringify!($name), value, "not a known value", format!("use one of {known}"))
                })
            }
        }
    };
}
#[doc(hidden)]
pub use words;

words! {
    /// Where a machine stands. Which changes are legal is in `transition`.
    State {
        /// EC2 returned it; its agent has not spoken for its claim yet.
        Created = "created",
        /// Taken out of the pool for a request; its runner is not registered yet.
        Claimed = "claimed",
        /// Its runner is registered and listening.
        Running = "running",
        /// Given back: being cleaned, or (with `pooledAt`) free for the next request.
        Idle = "idle",
        /// Decided to end; EC2 may still be at it.
        Terminated = "terminated",
    }
}

impl State {
    /// Returns whether the machine counts towards its class's `max`.
    pub const fn live(self) -> bool {
        match self {
            Self::Created | Self::Claimed | Self::Running | Self::Idle => true,
            Self::Terminated => false,
        }
    }
}

words! {
    /// How a machine is paid for.
    UsageClass {
        /// By the second, until we end it.
        OnDemand = "on-demand",
        /// Cheaper, and taken back by EC2 with two minutes' notice.
        Spot = "spot",
    }
}

words! {
    /// What an agent says; a level, repeated until the record shows it.
    Signal {
        /// First boot and the pre-runner script succeeded.
        Ok = "UD_OK",
        /// First boot or the pre-runner script failed.
        Failed = "UD_FAILED",
        /// The runner for the claim is registered and listening.
        RegOk = "UD_REG_OK",
        /// The runner for the claim could not be registered.
        RegFailed = "UD_REG_FAILED",
        /// The runner for the claim is deregistered, its processes are gone, the workspace is clean.
        RemoveRegOk = "UD_REMOVE_REG_OK",
        /// The machine could not be cleaned or deregistered.
        RemoveRegFailed = "UD_REMOVE_REG_FAILED",
    }
}

words! {
    /// Why a machine was ended.
    Reason {
        /// It passed the deadline of its state.
        Threshold = "threshold",
        /// Its first boot or pre-runner script failed.
        BootFailed = "boot-failed",
        /// Its runner could not be registered.
        RegistrationFailed = "registration-failed",
        /// It could not be proved clean.
        CleanupFailed = "cleanup-failed",
        /// Its agent fell silent or broke a rule.
        Unhealthy = "unhealthy",
        /// EC2 takes it back.
        Interrupted = "interrupted",
        /// It no longer matches its class.
        Drifted = "drifted",
        /// Its class has more live machines than `max`.
        Surplus = "surplus",
        /// It served as many claims as its class allows.
        MaxUses = "max-uses",
        /// It is older than its class allows.
        MaxAge = "max-age",
        /// A person asked.
        Expired = "expired",
        /// EC2 knew it as ours, no record did.
        Orphan = "orphan",
        /// EC2 no longer has it.
        Vanished = "vanished",
    }
}

impl Reason {
    /// Returns whether it is a failure, in contrast to a machine that was of no more use.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        match self {
            Self::Threshold
            | Self::BootFailed
            | Self::RegistrationFailed
            | Self::CleanupFailed
            | Self::Unhealthy
            | Self::Interrupted
            | Self::Vanished => true,
            Self::Drifted | Self::Surplus | Self::MaxUses | Self::MaxAge | Self::Expired | Self::Orphan => {
                false
            }
        }
    }
}

words! {
    /// The boundary within which a machine may be reused.
    ReuseWithin {
        /// The same repository.
        Repository = "repository",
        /// Repositories of the same owner.
        Owner = "owner",
        /// Every repository that the class admits.
        Any = "any",
        /// No reuse: one claim, then the machine ends.
        Never = "none",
    }
}

words! {
    /// How runners of a class are registered.
    RegistrationMode {
        /// Once per claim; the runner serves all jobs of its run.
        Run = "run",
        /// Once per job.
        Job = "job",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back_as_itself() {
        for state in State::ALL {
            assert_eq!(state.as_str().parse::<State>().unwrap(), *state);
        }
        for reason in Reason::ALL {
            assert_eq!(reason.as_str().parse::<Reason>().unwrap(), *reason);
        }
        for signal in Signal::ALL {
            assert_eq!(signal.as_str().parse::<Signal>().unwrap(), *signal);
        }
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_known_ones() {
        let error = "Running".parse::<State>().unwrap_err();
        assert!(error.fix.contains("running"), "{error}");
    }
}
