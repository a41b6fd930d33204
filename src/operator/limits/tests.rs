use std::sync::Mutex;

use tokio::time::Instant;

use super::*;

/// A provider with configured answers that records its terminations.
#[derive(Default)]
struct Provider {
    batches: Mutex<Vec<Vec<InstanceId>>>,
    protected: Option<InstanceId>,
    throttles: Mutex<u32>,
}

#[async_trait]
impl Compute for Provider {
    fn keeps_inventory(&self) -> bool {
        true
    }

    async fn launch(&self, _: &LaunchOrder) -> Result<Launched, ComputeError> {
        Ok(Launched::default())
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        self.batches.lock().unwrap().push(ids.to_vec());
        match &self.protected {
            Some(protected) if ids.contains(protected) => Err(ComputeError::Refused("protected".into())),
            Some(_) | None => Ok(()),
        }
    }

    async fn describe(&self, _: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        let mut throttles = self.throttles.lock().unwrap();
        if *throttles > 0 {
            *throttles -= 1;
            return Err(ComputeError::Throttled);
        }
        Ok(BTreeMap::new())
    }

    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        Ok(Vec::new())
    }
}

fn id(number: usize) -> InstanceId {
    InstanceId::parse(&format!("i-{number:017x}")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn ends_that_are_asked_for_within_a_moment_share_a_call() {
    let provider = Arc::new(Provider::default());
    let limited = Arc::new(Limited::new(provider.clone(), &Limits::default()));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..250 {
        let limited = limited.clone();
        tasks.spawn(async move { limited.terminate(&[id(number)]).await });
    }
    assert!(tasks.join_all().await.into_iter().all(|answer| answer.is_ok()));
    let sizes: Vec<usize> = provider.batches.lock().unwrap().iter().map(Vec::len).collect();
    assert_eq!(sizes, [100, 100, 50]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_leaves_the_shared_call_to_the_others() {
    let provider = Arc::new(Provider::default());
    let limited = Arc::new(Limited::new(provider.clone(), &Limits::default()));
    let ids = [id(1), id(2)];
    let mut first = Box::pin(limited.terminate(&ids[..1]));
    assert!(futures::poll!(&mut first).is_pending());
    let second = tokio::spawn({
        let limited = limited.clone();
        async move { limited.terminate(&[id(2)]).await }
    });
    tokio::task::yield_now().await;
    drop(first);
    assert_eq!(second.await.unwrap(), Ok(()));
    assert_eq!(*provider.batches.lock().unwrap(), [ids.to_vec()]);
}

#[tokio::test(start_paused = true)]
async fn an_end_nobody_waits_for_any_more_leaves_no_task_behind() {
    let provider = Arc::new(Provider::default());
    let limited = Limited::new(provider.clone(), &Limits::default());
    let ids = [id(1)];
    let mut asked = Box::pin(limited.terminate(&ids));
    assert!(futures::poll!(&mut asked).is_pending());
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    drop(asked);
    tokio::time::sleep(GATHER * 10).await;
    assert!(provider.batches.lock().unwrap().is_empty(), "who asked is dead");
    assert_eq!(limited.terminate(&[id(2)]).await, Ok(()));
    assert_eq!(*provider.batches.lock().unwrap(), [[id(2)]]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_ended_holds_up_no_other() {
    let provider = Arc::new(Provider { protected: Some(id(13)), ..Provider::default() });
    let limited = Arc::new(Limited::new(provider.clone(), &Limits::default()));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40 {
        let limited = limited.clone();
        tasks.spawn(async move { (number, limited.terminate(&[id(number)]).await.is_ok()) });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_unstable();
    let refused: Vec<usize> = answers.iter().filter(|(_, ended)| !ended).map(|(number, _)| *number).collect();
    assert_eq!(refused, [13]);
    assert!(provider.batches.lock().unwrap().len() <= 13, "halved, not one by one");
}

#[tokio::test(start_paused = true)]
async fn classes_take_turns_by_what_they_were_given() {
    let line = Arc::new(Line::new(&[Rate::new(1, 1)]));
    line.take("first", &[1.0]).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for whose in ["a", "a", "a", "a", "b", "c", "b"] {
        let (line, order) = (line.clone(), order.clone());
        tasks.spawn(async move {
            line.take(whose, &[1.0]).await.unwrap();
            order.lock().unwrap().push(whose);
        });
        tokio::task::yield_now().await;
    }
    tasks.join_all().await;
    assert_eq!(*order.lock().unwrap(), ["a", "b", "c", "a", "b", "a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_leaves_the_line() {
    let line = Line::new(&[Rate::new(1, 1)]);
    line.take("a", &[1.0]).await.unwrap();
    let begun = Instant::now();
    let gives_up = tokio::time::timeout(Duration::from_millis(100), line.take("b", &[1.0]));
    let (gave_up, taken) = tokio::join!(gives_up, line.take("c", &[1.0]));
    assert!(gave_up.is_err() && taken.is_ok());
    assert!(begun.elapsed() < Duration::from_millis(1200), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_throttled_call_is_told_and_slows_the_line_down_for_a_while() {
    let provider = Arc::new(Provider { throttles: Mutex::new(2), ..Provider::default() });
    let limited = Limited::new(provider.clone(), &Limits::default());
    assert_eq!(limited.describe(&[id(1)]).await, Err(ComputeError::Throttled));
    assert_eq!(*provider.throttles.lock().unwrap(), 1, "the adapter has repeated it enough");
    assert!(limited.looks.pace() <= 0.5);
    let asked = Instant::now();
    assert_eq!(limited.describe(&[id(1)]).await, Err(ComputeError::Throttled));
    assert!(asked.elapsed() >= Duration::from_millis(50), "nothing is left of a bucket that was not there");
    assert_eq!(limited.describe(&[id(1)]).await, Ok(BTreeMap::new()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(limited.looks.pace() > 0.99);
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_stops_begins_no_launch_that_waits() {
    let line = Arc::new(Line::new(&[Rate::new(1, 1)]));
    line.take("a", &[1.0]).await.unwrap();
    let waiting = tokio::spawn({
        let line = line.clone();
        async move { line.take("a", &[1.0]).await.is_ok() }
    });
    tokio::task::yield_now().await;
    line.close();
    assert!(!waiting.await.unwrap());
}
