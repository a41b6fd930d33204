//! Wraps the operator's ports: it records every call and makes the planned one fail as planned. A dead operator gets no
//! answer to any call that is still in flight.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::crash_plans::history::History;
use crate::crash_plans::plan::{Call, Kind, Plan, Role};

/// The calls of one run, through all lives of its operator. Clones share it.
#[derive(Clone)]
pub(crate) struct Recorder(Arc<Inner>);

struct Inner {
    plan: Plan,
    history: History,
    notes: Mutex<Notes>,
    died: Notify,
}

#[derive(Default)]
struct Notes {
    trace: Vec<Call>,
    counts: BTreeMap<String, usize>,
    /// Whether calls are noted no more.
    closed: bool,
    hits: usize,
    /// Reads that would have said the same a moment ago.
    same: usize,
    /// What no operator may ever do.
    wrongs: Vec<String>,
}

impl Recorder {
    pub(crate) fn new(plan: Plan, history: History) -> Self {
        Self(Arc::new(Inner { plan, history, notes: Mutex::default(), died: Notify::new() }))
    }

    fn notes<T>(&self, act: impl FnOnce(&mut Notes) -> T) -> T {
        act(&mut self.0.notes.lock().expect("nobody panics with it"))
    }

    /// A new life of the operator.
    pub(crate) fn life(&self) -> Life {
        Life { recorder: self.clone(), alive: Arc::new(AtomicBool::new(true)) }
    }

    /// Waits for the next death.
    pub(crate) async fn death(&self) {
        self.0.died.notified().await;
    }

    /// Notes nothing from now on: what follows is the same again and again.
    pub(crate) fn close(&self) {
        self.notes(|notes| notes.closed = true);
    }

    pub(crate) fn trace(&self) -> Vec<Call> {
        self.notes(|notes| notes.trace.clone())
    }

    /// How often something went wrong as planned.
    pub(crate) fn hits(&self) -> usize {
        self.notes(|notes| notes.hits)
    }

    /// How many reads would have said the same a moment ago.
    pub(crate) fn same(&self) -> usize {
        self.notes(|notes| notes.same)
    }

    pub(crate) fn wrongs(&self) -> Vec<String> {
        self.notes(|notes| notes.wrongs.clone())
    }

    pub(crate) fn history(&self) -> &History {
        &self.0.history
    }

    /// Notes that the operator did what it never may.
    pub(crate) fn wrong(&self, what: String) {
        self.notes(|notes| notes.wrongs.push(what));
    }

    /// Notes a call and says what is planned for it.
    fn reach(&self, role: Role, label: String) -> Option<Kind> {
        self.notes(|notes| {
            if notes.closed {
                return None;
            }
            let nth = notes.counts.entry(label.clone()).or_default();
            *nth += 1;
            let planned = self.0.plan.for_call(&label, *nth);
            notes.hits += usize::from(planned.is_some());
            notes.trace.push(Call { role, label, nth: *nth });
            planned
        })
    }
}

/// One life of the operator.
#[derive(Clone)]
pub(crate) struct Life {
    recorder: Recorder,
    alive: Arc<AtomicBool>,
}

impl Life {
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    async fn living<T>(&self, answer: T) -> T {
        if self.alive.load(Ordering::SeqCst) { answer } else { pending().await }
    }

    async fn die<T>(&self) -> T {
        self.alive.store(false, Ordering::SeqCst);
        self.recorder.0.died.notify_one();
        pending().await
    }

    /// A call that changes something.
    pub(crate) async fn effect<T, E>(
        &self,
        label: String,
        lost: E,
        call: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        self.living(()).await;
        match self.recorder.reach(Role::Effect, label) {
            Some(Kind::Before) => self.die().await,
            Some(Kind::After) => {
                // Nobody is there to hear how it went.
                let _ = call.await;
                self.die().await
            }
            Some(Kind::Lost) => {
                call.await?;
                Err(lost)
            }
            Some(Kind::Stale) | None => {
                let answer = call.await;
                self.living(answer).await
            }
        }
    }

    /// A call that only reads; `before` is what it would have said a moment ago, if that was something else.
    pub(crate) async fn read<T, E>(
        &self,
        label: String,
        call: impl Future<Output = Result<T, E>> + Send,
        before: impl FnOnce(&T) -> Option<T>,
    ) -> Result<T, E> {
        self.living(()).await;
        let fresh = call.await;
        let fresh = self.living(fresh).await?;
        let Some(before) = before(&fresh) else {
            self.recorder.notes(|notes| notes.same += usize::from(!notes.closed));
            return Ok(fresh);
        };
        match self.recorder.reach(Role::Read, label) {
            Some(Kind::Stale) => Ok(before),
            Some(Kind::Before | Kind::After | Kind::Lost) | None => Ok(fresh),
        }
    }

    /// The same for what only the outside knows: what it said last is what it was before.
    pub(crate) async fn read_outside<T: PartialEq + Clone + Send, E>(
        &self,
        label: String,
        kept: &Mutex<BTreeMap<String, T>>,
        call: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        let before = |fresh: &T| {
            let last = kept.lock().expect("nobody panics with it").insert(label.clone(), fresh.clone());
            last.filter(|last| last != fresh)
        };
        self.read(label.clone(), call, before).await
    }
}
