//! Sessions, messages and the announced capacity.

use super::*;

/// [live]: one session a set, 409 `RunnerScaleSetSessionConflictException`.
#[test]
fn a_set_has_one_session() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 5);
    let second = bench.service.open(set, "us", ("other", "t"), bench.now).unwrap_err();
    assert_eq!(second.wire(), (409, "RunnerScaleSetSessionConflictException"));
    bench.service.close(set, SESSION.0, bench.now).unwrap();
    assert_eq!(bench.service.close(set, SESSION.0, bench.now), Err(SetRefusal::NoSession));
    bench.service.open(set, "us", ("other", "t"), bench.now).unwrap();
}

/// [live]: after a kill of the listener it cleared in about 50 s.
#[test]
fn the_session_of_a_killed_listener_is_held_for_a_while() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 5);
    bench.pass(49);
    assert!(bench.service.open(set, "us", ("other", "t"), bench.now).is_err());
    bench.pass(1);
    bench.service.open(set, "us", ("other", "t"), bench.now).unwrap();
    let old = bench.service.message(set, SESSION, None, 5, bench.now);
    assert_eq!(old.unwrap_err(), SetRefusal::TokenExpired);
}

/// [s] actions/scaleset, `session_client.go`: 401 of the queue is answered by a renewal, about every 50 min.
#[test]
fn a_session_s_credential_ends_and_is_renewed() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 5);
    for _ in 0..50 * 60 / 40 {
        bench.pass(40);
        let _ = bench.service.message(set, SESSION, None, 5, bench.now);
    }
    let over = bench.service.message(set, SESSION, None, 5, bench.now);
    assert_eq!(over.unwrap_err().wire().0, 401);
    bench.service.renew(set, SESSION.0, "new", bench.now).unwrap();
    assert_eq!(bench.service.message(set, (SESSION.0, "new"), None, 5, bench.now), Ok(None));
    let old = bench.service.message(set, SESSION, None, 5, bench.now);
    assert_eq!(old.unwrap_err(), SetRefusal::TokenExpired);
}

/// The table of failures, "404 on renewal": another session is opened, and the cursor stays good.
#[test]
fn an_evicted_session_cannot_be_renewed_and_its_messages_stay() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 5);
    bench.queue(&["small"]);
    let sent = bench.poll(set, None, 5).unwrap();
    bench.service.evict(set);
    let over = bench.service.message(set, SESSION, None, 5, bench.now);
    assert_eq!(over.unwrap_err().wire().0, 401);
    assert_eq!(bench.service.renew(set, SESSION.0, "t", bench.now).unwrap_err().wire().0, 404);
    bench.service.open(set, "us", SESSION, bench.now).unwrap();
    assert_eq!(bench.poll(set, None, 5).unwrap().id, sent.id);
    bench.queue(&["small"]);
    assert_eq!(bench.poll(set, Some(sent.id), 5).unwrap().id, sent.id + 1);
}

/// [live]: a message comes again until it is deleted.
#[test]
fn a_message_comes_again_until_it_is_deleted() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 5);
    bench.queue(&["small"]);
    let sent = bench.poll(set, None, 5).unwrap();
    bench.queue(&["small"]);
    assert_eq!(bench.poll(set, None, 5).unwrap().news, sent.news);
    bench.service.behave(SetBehaviour { repeats_the_last: true, ..SetBehaviour::default() });
    assert_eq!(bench.poll(set, Some(sent.id), 5).unwrap().id, sent.id);
    bench.service.delete_message(set, SESSION, sent.id, bench.now).unwrap();
    bench.service.delete_message(set, SESSION, sent.id, bench.now).unwrap();
    let next = bench.poll(set, None, 5).unwrap();
    assert!(next.id > sent.id);
    assert_eq!(next.news.len(), 1);
}

/// [s]: one batch of at most 50.
#[test]
fn a_batch_holds_fifty() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 200);
    for _ in 0..101 {
        bench.queue(&["small"]);
    }
    let mut sizes = Vec::new();
    while let Some(batch) = bench.poll(set, None, 200) {
        assert_eq!(batch.statistics.assigned, 101);
        sizes.push(batch.news.len());
        bench.service.delete_message(set, SESSION, batch.id, bench.now).unwrap();
    }
    assert_eq!(sizes, [50, 50, 1]);
}

/// queue.md: the capacity is the total that the set may hold.
#[test]
fn a_set_holds_as_many_jobs_as_it_announced() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 2);
    let jobs: Vec<u64> = (0..4).map(|_| bench.queue(&["small"])).collect();
    assert_eq!(bench.service.statistics(set).assigned, 2);
    let runner = bench.runner(set);
    assert_eq!(bench.take(runner), Some(jobs[0]));
    bench.service.job_starts(jobs[0], bench.now);
    assert_eq!(bench.service.statistics(set).assigned, 2, "a running job counts");
    bench.service.job_ends(jobs[0], "succeeded", bench.now);
    assert_eq!(bench.service.statistics(set).assigned, 2);
    let _ = bench.poll(set, None, 3);
    assert_eq!(bench.service.statistics(set).assigned, 3);
}

/// A set without a listener has announced nothing: its jobs wait at GitHub, and are assigned when one comes.
#[test]
fn jobs_wait_for_a_listener() {
    let mut bench = Bench::new();
    let set = bench.set(&["small"]);
    let job = bench.queue(&["small"]);
    assert_eq!(bench.service.statistics(set).assigned, 0);
    bench.service.open(set, "us", SESSION, bench.now).unwrap();
    assert_eq!(bench.told(set), [(NewsKind::Assigned, job, String::new())]);
}

/// [live]: 0 is a trap door: no messages, and a job queued meanwhile is never offered again.
#[test]
fn a_job_that_is_queued_while_0_is_announced_is_never_offered() {
    let mut bench = Bench::new();
    let set = bench.listening(&["small"], 1);
    let before = bench.queue(&["small"]);
    assert_eq!(bench.poll(set, None, 0), None);
    bench.queue(&["small"]);
    assert_eq!(bench.poll(set, None, 0), None);
    assert_eq!(bench.told(set), [(NewsKind::Assigned, before, String::new())]);
    let after = bench.queue(&["small"]);
    assert_eq!(bench.told(set), [(NewsKind::Assigned, after, String::new())]);
    assert_eq!(bench.service.jobs().filter(|job| job.place == JobPlace::Trapped).count(), 1);
}

/// ARC#4397: the statistics are stuck too high.
#[test]
fn statistics_may_count_jobs_that_do_not_exist() {
    let mut bench = Bench::behaving(SetBehaviour { stale_assigned: 3, ..SetBehaviour::default() });
    let set = bench.listening(&["small"], 5);
    bench.runner(set);
    let counted = bench.service.statistics(set);
    assert_eq!((counted.assigned, counted.registered, counted.idle, counted.busy), (3, 1, 1, 0));
}

/// The table of failures, "unknown types": a batch may have news that no client knows.
#[test]
fn a_batch_may_hold_unknown_news() {
    let mut bench = Bench::behaving(SetBehaviour { unknown_news: true, ..SetBehaviour::default() });
    let set = bench.listening(&["small"], 5);
    bench.queue(&["small"]);
    assert_eq!(bench.kinds(set), [NewsKind::Assigned, NewsKind::Unknown]);
}
