//! A cache of responses with single flight: concurrent callers with the same key share one call and its response.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

type Question<V, E> = Shared<BoxFuture<'static, Result<V, E>>>;

/// Cached responses by key.
pub(crate) struct Answers<K, V, E> {
    kept: Arc<Mutex<BTreeMap<K, V>>>,
    asking: Mutex<BTreeMap<K, Question<V, E>>>,
}

impl<K, V, E> Default for Answers<K, V, E> {
    fn default() -> Self {
        Self { kept: Arc::default(), asking: Mutex::default() }
    }
}

impl<K, V, E> Answers<K, V, E>
where
    K: Clone + Ord + Send + 'static,
    V: Clone + Send + 'static,
    E: Clone + Send + 'static,
{
    /// Returns a cached response that is still valid.
    pub(crate) fn kept(&self, key: &K, holds: impl Fn(&V) -> bool) -> Option<V> {
        lock(&self.kept).get(key).filter(|value| holds(value)).cloned()
    }

    /// Returns a cached response that is still valid, else a new one.
    ///
    /// # Guarantees
    /// At most one call for a key is in progress; concurrent callers share its response, even an error. Errors are not
    /// cached.
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) async fn get(
        &self,
        key: &K,
        holds: impl Fn(&V) -> bool,
        ask: impl FnOnce() -> BoxFuture<'static, Result<V, E>>,
    ) -> Result<V, E> {
        let question = {
            let mut asking = lock(&self.asking);
            // Checked under the lock: a call that just ended has cached its response before it left the table.
            if let Some(value) = self.kept(key, holds) {
                return Ok(value);
            }
            asking.entry(key.clone()).or_insert_with(|| self.question(key.clone(), ask())).clone()
        };
        let answer = question.clone().await;
        let mut asking = lock(&self.asking);
        if asking.get(key).is_some_and(|current| current.ptr_eq(&question)) {
            asking.remove(key);
        }
        answer
    }

    /// Caches a response that came with another call.
    pub(crate) fn keep(&self, key: K, value: V) {
        lock(&self.kept).insert(key, value);
    }

    /// Drops every response that is no longer valid.
    pub(crate) fn retain(&self, holds: impl Fn(&V) -> bool) {
        lock(&self.kept).retain(|_, value| holds(value));
    }

    fn question(&self, key: K, ask: BoxFuture<'static, Result<V, E>>) -> Question<V, E> {
        let kept = Arc::clone(&self.kept);
        let keep = move |answer: Result<V, E>| {
            if let Ok(value) = &answer {
                lock(&kept).insert(key, value.clone());
            }
            answer
        };
        ask.map(keep).boxed().shared()
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().expect("nobody panics while holding the answers")
}
