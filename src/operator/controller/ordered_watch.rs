//! A value that one task sets and several wait for. Waiters are woken in the order in which they began to wait. tokio's
//! `watch` randomises that order in each process, so a seed of the simulation would not determine everything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The sender is gone, and the last value was seen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

struct Shared<T> {
    state: Mutex<State<T>>,
    news: Notify,
}

struct State<T> {
    value: T,
    /// Number of changes of the value.
    changes: u64,
    gone: bool,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sender of the value.
pub(crate) struct Sender<T>(Arc<Shared<T>>);

/// A receiver of the value, which can wait for changes.
pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The last change that this receiver has seen.
    seen: u64,
}

/// Creates both ends of a channel; the initial value counts as seen.
pub(crate) fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let state = Mutex::new(State { value, changes: 0, gone: false });
    let shared = Arc::new(Shared { state, news: Notify::new() });
    (Sender(shared.clone()), Receiver { shared, seen: 0 })
}

impl<T: PartialEq> Sender<T> {
    /// Sets the value and returns whether it changed. Waiters are woken only then.
    pub(crate) fn set(&self, value: T) -> bool {
        let mut state = self.0.state();
        if state.value == value {
            return false;
        }
        state.value = value;
        state.changes += 1;
        drop(state);
        self.0.news.notify_waiters();
        true
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state().gone = true;
        self.0.news.notify_waiters();
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), seen: self.seen }
    }
}

impl<T: Copy> Receiver<T> {
    /// Returns the value without marking it as seen.
    pub(crate) fn get(&self) -> T {
        self.shared.state().value
    }

    /// Returns the value and marks it as seen.
    pub(crate) fn see(&mut self) -> T {
        let state = self.shared.state();
        self.seen = state.changes;
        state.value
    }

    /// Waits until the value has changed since it was last seen. Cancel safe.
    pub(crate) async fn changed(&mut self) -> Result<(), Gone> {
        loop {
            // Registered before the check, so that a change after the check wakes it.
            let news = self.shared.news.notified();
            {
                let state = self.shared.state();
                if state.changes != self.seen {
                    self.seen = state.changes;
                    return Ok(());
                }
                if state.gone {
                    return Err(Gone);
                }
            }
            news.await;
        }
    }

    /// Waits until the value satisfies a predicate. Cancel safe.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&T) -> bool) -> Result<(), Gone> {
        while !wanted(&self.see()) {
            self.changed().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::{Gone, channel};

    /// With tokio's `watch`, sixteen tasks are woken in this order once in a thousand million processes.
    #[tokio::test]
    async fn those_who_wait_are_woken_in_the_order_in_which_they_came() {
        let ((sender, waits), woken) = (channel(0), Arc::new(Mutex::new(Vec::new())));
        for number in 0..16 {
            let (mut waits, woken) = (waits.clone(), woken.clone());
            tokio::spawn(async move {
                waits.changed().await.unwrap();
                woken.lock().unwrap().push(number);
            });
        }
        tokio::task::yield_now().await;
        assert!(sender.set(1));
        tokio::task::yield_now().await;
        assert_eq!(*woken.lock().unwrap(), (0..16).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_change_is_seen_once_and_the_same_value_is_none() {
        let (sender, mut waits) = channel(0);
        assert!(!sender.set(0));
        assert!(sender.set(1));
        assert_eq!(waits.get(), 1, "a look leaves it unseen");
        assert_eq!(waits.changed().await, Ok(()));
        assert_eq!(waits.until(|value| *value == 1).await, Ok(()), "it is so already");
        assert!(sender.set(2));
        assert_eq!(waits.see(), 2);
        drop(sender);
        assert_eq!(waits.changed().await, Err(Gone));
        assert_eq!(waits.until(|value| *value == 1).await, Err(Gone));
    }

    #[tokio::test]
    async fn the_last_value_is_seen_when_whoever_set_it_is_gone() {
        let (sender, mut waits) = channel(0);
        let mut waiting = waits.clone();
        let waiting = tokio::spawn(async move { (waiting.changed().await, waiting.changed().await) });
        tokio::task::yield_now().await;
        assert!(sender.set(1));
        drop(sender);
        assert_eq!(waiting.await.unwrap(), (Ok(()), Err(Gone)));
        assert_eq!(waits.changed().await, Ok(()));
    }
}
