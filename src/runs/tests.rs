//! The store in memory, and what its tests share with those of the folder.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use super::*;
use crate::time::Clock;

pub(super) const KEEP: Duration = Duration::from_secs(3600);
pub(super) const LONG: Duration = Duration::from_secs(20);

/// A clock that goes when it is told to. In milliseconds.
#[derive(Clone)]
pub(super) struct Hand(Arc<AtomicU64>);

impl Hand {
    pub(super) fn new() -> Hand {
        Hand(Arc::new(AtomicU64::new(1_000_000)))
    }

    pub(super) fn pass(&self, time: Duration) {
        self.0.fetch_add(clock::whole(time), Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn today(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn steady(&self) -> Duration {
        Duration::from_millis(self.today())
    }
}

pub(super) fn named(name: &str) -> Owner {
    Owner::Named(name.into())
}

pub(super) fn start(owner: &Owner) -> Start {
    Start {
        owner: owner.clone(),
        patterns: vec!["summarize".into()],
        model: "m".into(),
    }
}

fn in_memory(keep: Duration) -> (Runs, Hand) {
    let hand = Hand::new();
    (
        Runs(Arc::new(Store::new(
            keep,
            None,
            None,
            Box::new(hand.clone()),
        ))),
        hand,
    )
}

fn bounded(runs: usize, bytes: u64) -> (Runs, Hand) {
    let hand = Hand::new();
    let store = Store::new(KEEP, None, None, Box::new(hand.clone()));
    (Runs(Arc::new(store.bounded((runs, bytes), (0, 0)))), hand)
}

/// A finished run.
pub(super) fn finished(runs: &Runs, owner: &Owner, text: &str) -> Run {
    let writer = runs.begin(start(owner));
    writer.append(text).unwrap();
    writer.finish(End::completed());
    writer.run()
}

fn is_there(runs: &Runs, run: &Run, owner: &Owner) -> bool {
    runs.find(&run.id().to_string(), owner).is_some()
}

fn ids(page: &RunPage) -> Vec<RunId> {
    page.runs.iter().map(Run::id).collect()
}

#[test]
fn a_run_is_read_while_it_is_written() {
    let (runs, hand) = in_memory(KEEP);
    let me = named("me");
    let writer = runs.begin(start(&me));
    let run = runs.find(&writer.run().id().to_string(), &me).unwrap();
    assert_eq!(
        run.wait(Some(0), Duration::ZERO, &mut || true),
        Waited::TimedOut
    );
    assert_eq!(run.wait(None, LONG, &mut || false), Waited::Stopped);
    writer.append("aé漢").unwrap();
    assert_eq!(run.wait(Some(0), LONG, &mut || true), Waited::More);
    assert_eq!(
        (
            run.read(0, usize::MAX),
            run.read(1, 2),
            run.read_chars(1, 1)
        ),
        ("aé漢".into(), "é".into(), "é".into())
    );
    hand.pass(Duration::from_millis(5));
    let usage = json!({"output_tokens": 3});
    writer.finish(
        End::completed()
            .with_usage(usage.clone())
            .with_result(json!({"format": "markdown"})),
    );
    assert_eq!(
        run.wait(Some(0), LONG, &mut || true),
        Waited::More,
        "the rest comes before the end"
    );
    assert_eq!(run.wait(Some(6), LONG, &mut || true), Waited::Ended);
    let record = run.record();
    assert_eq!(
        (record.state, record.bytes, record.chars),
        (RunState::Completed, 6, 3)
    );
    assert_eq!(
        (record.created, record.ended, record.updated),
        (1_000_000, Some(1_000_005), 1_000_005)
    );
    assert_eq!(
        (record.usage, record.error, record.result),
        (Some(usage), None, Some(json!({"format": "markdown"})))
    );
    assert_eq!(
        (record.patterns, record.model),
        (vec!["summarize".to_string()], "m".to_string())
    );
}

#[test]
fn whoever_waits_is_woken() {
    let (runs, _) = in_memory(KEEP);
    let writer = runs.begin(start(&Owner::Process));
    let run = writer.run();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        while run.wait(Some(text.len() as u64), LONG, &mut || true) == Waited::More {
            text.push_str(&run.read(text.len() as u64, 7));
        }
        (text, run.record().state)
    });
    (0..1000).for_each(|n| writer.append(&format!("{n} é")).unwrap());
    writer.finish(End::failed(json!({"type": "x"})));
    let all: String = (0..1000).map(|n| format!("{n} é")).collect();
    assert_eq!(reader.join().unwrap(), (all, RunState::Failed));
}

#[test]
fn unknown_and_foreign_runs_are_the_same() {
    let (runs, _) = in_memory(KEEP);
    let owners = [
        named("me"),
        named("you"),
        Owner::Process,
        Owner::Folder,
        Owner::Key,
    ];
    for owner in &owners {
        let id = finished(&runs, owner, "x").id().to_string();
        for other in &owners {
            assert_eq!(runs.find(&id, other).is_some(), owner == other);
        }
        assert!(runs.find(&id.to_uppercase(), owner).is_none());
    }
    assert!(
        runs.find("run_00000000000000000000000000000000", &owners[0])
            .is_none()
    );
    assert!(runs.find("../../etc/passwd", &owners[0]).is_none());
    assert!(runs.list(&Owner::Key, None, 50).is_none());
    assert_eq!(runs.list(&owners[0], None, 50).unwrap().runs.len(), 1);
}

#[test]
fn a_run_is_kept_for_its_time_and_read_by_who_holds_it() {
    let (runs, hand) = in_memory(KEEP);
    let me = named("me");
    let writer = runs.begin(start(&me));
    hand.pass(KEEP * 9);
    assert!(
        is_there(&runs, &writer.run(), &me),
        "a run that works has no age"
    );
    writer.append("text").unwrap();
    writer.finish(End::completed());
    hand.pass(KEEP - Duration::from_millis(1));
    let run = runs.find(&writer.run().id().to_string(), &me).unwrap();
    hand.pass(Duration::from_millis(1));
    assert!(!is_there(&runs, &run, &me));
    assert_eq!(runs.list(&me, None, 9).unwrap().runs.len(), 0);
    assert_eq!(run.read(0, usize::MAX), "text");
    assert!(runs.tally().bytes > 0);
    drop((run, writer));
    assert_eq!(runs.tally(), Tally::default());
}

#[test]
fn nothing_is_kept_where_nothing_shall_be() {
    let (runs, _) = in_memory(Duration::ZERO);
    let me = named("me");
    assert!(!runs.keeps());
    assert!(runs.begin_task(start(&me), KEEP).is_err());
    let writer = runs.begin(start(&me));
    writer.append("text").unwrap();
    let run = writer.run();
    assert!(
        is_there(&runs, &run, &me),
        "while it works it can be cancelled"
    );
    assert_eq!(run.promise(KEEP), Err(StoreFull));
    writer.finish(End::completed());
    assert!(!is_there(&runs, &run, &me));
    assert_eq!(
        (run.record().state, run.read(0, 9)),
        (RunState::Completed, "text".into())
    );
}

#[test]
fn when_full_the_oldest_of_who_holds_most_goes() {
    let (runs, hand) = bounded(3, 1000);
    let (me, you) = (named("me"), named("you"));
    let first = finished(&runs, &you, "1");
    let mut mine = Vec::new();
    for text in ["2", "3"] {
        hand.pass(Duration::from_millis(1));
        mine.push(finished(&runs, &me, text));
    }
    let working = runs.begin(start(&me));
    assert!(!is_there(&runs, &mine[0], &me));
    assert!(
        is_there(&runs, &mine[1], &me)
            && is_there(&runs, &first, &you)
            && is_there(&runs, &working.run(), &me)
    );
    let large = finished(&runs, &you, &"x".repeat(990));
    assert!(
        is_there(&runs, &large, &you),
        "three at once, and the new one is not the oldest"
    );
    hand.pass(Duration::from_millis(1));
    let larger = finished(&runs, &you, &"x".repeat(999));
    assert!(is_there(&runs, &larger, &you) && !is_there(&runs, &large, &you));
}

#[test]
fn what_was_promised_stays_and_what_was_not_still_runs() {
    let (runs, hand) = bounded(2, 1000);
    let me = named("me");
    let ttl = Duration::from_secs(7200);
    let task = runs.begin_task(start(&me), ttl).unwrap();
    task.finish(End::completed());
    let writer = runs.begin(start(&me));
    writer.run().promise(ttl).unwrap();
    assert_eq!(writer.run().record().ttl, Some(7_200_000));
    assert_eq!(runs.begin_task(start(&me), ttl).err(), Some(StoreFull));
    let ordinary = runs.begin(start(&me));
    assert_eq!(ordinary.run().promise(ttl), Err(StoreFull));
    assert!(is_there(&runs, &ordinary.run(), &me));
    ordinary.finish(End::completed());
    assert!(
        !is_there(&runs, &ordinary.run(), &me),
        "nothing else may go"
    );
    hand.pass(KEEP);
    assert!(
        is_there(&runs, &task.run(), &me),
        "kept by the promise alone"
    );
    hand.pass(KEEP);
    assert!(!is_there(&runs, &task.run(), &me));
    assert!(runs.begin_task(start(&me), ttl).is_ok());
    writer.finish(End::completed());
    assert_eq!(writer.run().promise(ttl), Err(StoreFull), "it has ended");
}

#[test]
fn what_a_failed_run_has_beside_its_text_counts_and_can_be_evicted() {
    let (runs, hand) = bounded(10, 1000);
    let me = named("me");
    let fail = || {
        hand.pass(Duration::from_millis(1));
        let writer = runs.begin(start(&me));
        writer.finish(End::failed(json!(1)).with_result(json!({ "partial": ["x".repeat(400)] })));
        // Not the run: who holds it holds its memory.
        writer.run().id().to_string()
    };
    let failed = [fail(), fail(), fail()];
    let there = || failed.each_ref().map(|id| runs.find(id, &me).is_some());
    assert_eq!(there(), [false, true, true]);
    assert!(runs.shrink(1) > 0);
    assert_eq!(there(), [false, false, true]);
}

#[test]
fn tasks_of_one_caller_leave_room_for_the_runs_of_others() {
    let (runs, _) = bounded(10, 1000);
    let (me, you) = (named("me"), named("you"));
    while let Ok(task) = runs.begin_task(start(&you), KEEP) {
        task.finish(End::failed(json!("nothing was run")));
    }
    let run = finished(&runs, &me, "paid for");
    assert!(is_there(&runs, &run, &me));
    assert!(runs.begin_task(start(&me), KEEP).is_ok());
}

#[test]
fn bytes_that_were_promised_leave_no_room_for_more() {
    let (runs, _) = bounded(10, 100);
    let me = named("me");
    let task = runs.begin_task(start(&me), KEEP).unwrap();
    task.append(&"x".repeat(100)).unwrap();
    assert!(runs.begin_task(start(&me), KEEP).is_err());
    task.finish(End::completed());
    assert!(runs.begin_task(start(&me), KEEP).is_err());
    assert!(is_there(&runs, &task.run(), &me));
}

#[test]
fn cancelled_is_seen_at_once_and_stays() {
    let (runs, _) = in_memory(KEEP);
    let writer = runs.begin(start(&Owner::Process));
    let run = writer.run();
    writer.append("so far").unwrap();
    assert!(!writer.is_cancelled());
    assert!(run.cancel().unwrap() && writer.is_cancelled() && !run.cancel().unwrap());
    assert_eq!(run.wait(None, LONG, &mut || true), Waited::Ended);
    writer.append(", and on").unwrap();
    writer.finish(End::completed().with_usage(json!(1)));
    let record = run.record();
    assert_eq!(
        (record.state, record.usage, run.read(0, 99)),
        (RunState::Cancelled, Some(json!(1)), "so far".into())
    );
    writer.finish(End::failed(json!(2)));
    assert_eq!(run.record().error, None, "the first end counts");
    let done = finished(&runs, &Owner::Process, "x");
    assert!(!done.cancel().unwrap());
    assert_eq!(done.record().state, RunState::Completed);
}

#[test]
fn a_worker_that_goes_leaves_an_interrupted_run() {
    let (runs, _) = in_memory(KEEP);
    let writer = runs.begin(start(&Owner::Process));
    writer.append("half").unwrap();
    let run = writer.run();
    drop(writer);
    assert_eq!(
        (run.record().state, run.read(0, 9)),
        (RunState::Interrupted, "half".into())
    );
}

#[test]
fn the_end_of_the_process_interrupts_what_works() {
    let (runs, _) = in_memory(KEEP);
    let done = finished(&runs, &Owner::Process, "x");
    let writers: Vec<RunWriter> = (0..3).map(|_| runs.begin(start(&Owner::Process))).collect();
    assert!(writers[2].run().cancel().unwrap());
    assert_eq!(runs.tally().working, 3);
    assert_eq!(runs.interrupt_all(), 3);
    assert_eq!(runs.interrupt_all(), 0);
    assert!(writers.iter().all(RunWriter::is_cancelled));
    writers[0].finish(End::cancelled());
    let states: Vec<RunState> = writers
        .iter()
        .map(|writer| writer.run().record().state)
        .collect();
    assert_eq!(
        states,
        [
            RunState::Interrupted,
            RunState::Interrupted,
            RunState::Cancelled
        ]
    );
    assert_eq!(done.record().state, RunState::Completed);
}

#[test]
fn pages_stay_in_place_while_runs_come_and_go() {
    let (runs, hand) = in_memory(KEEP);
    let me = named("me");
    let all: Vec<RunId> = (0..5)
        .map(|n| {
            hand.pass(Duration::from_millis(n % 2));
            finished(&runs, &me, "x").id()
        })
        .collect();
    finished(&runs, &named("you"), "x");
    let whole = ids(&runs.list(&me, None, 5).unwrap());
    assert!(whole.len() == 5 && all.iter().all(|id| whole.contains(id)));
    assert!(runs.list(&me, None, 5).unwrap().next.is_none());
    let one = runs.list(&me, None, 2).unwrap();
    assert_eq!(ids(&one), whole[..2]);
    hand.pass(Duration::from_millis(1));
    finished(&runs, &me, "new");
    let cursor = RunCursor::parse(&one.next.unwrap().to_string());
    let two = runs.list(&me, cursor, 2).unwrap();
    assert_eq!(ids(&two), whole[2..4]);
    let three = runs.list(&me, two.next, 2).unwrap();
    assert_eq!((ids(&three), three.next), (whole[4..].to_vec(), None));
    hand.pass(KEEP);
    assert_eq!(
        runs.list(&me, cursor, 2).unwrap().runs.len(),
        0,
        "a cursor outlives what it stands beside"
    );
}

#[test]
fn made_up_cursors_are_none() {
    let good = format!("5-{}", RunId::new());
    assert_eq!(
        RunCursor::parse(&good).map(|cursor| cursor.to_string()),
        Some(good.clone())
    );
    for text in [
        "",
        "5",
        "-",
        &good[1..],
        &format!("0{good}"),
        &format!("+{good}"),
        &format!("{good} "),
    ] {
        assert_eq!(RunCursor::parse(text), None, "{text}");
    }
}

#[test]
fn memory_is_charged_and_given_back() {
    let charged = Arc::new(AtomicUsize::new(0));
    let told = charged.clone();
    let accounts: Accounts = Box::new(move || {
        struct CountedShare(Arc<AtomicUsize>, usize);
        impl Drop for CountedShare {
            fn drop(&mut self) {
                self.0.fetch_sub(self.1, Ordering::Relaxed);
            }
        }
        let mut share = CountedShare(told.clone(), 0);
        Box::new(move |bytes| {
            let others = share.0.load(Ordering::Relaxed) - share.1;
            let fits = bytes < share.1 || others + bytes <= 200_000;
            if fits {
                share.0.store(others + bytes, Ordering::Relaxed);
                share.1 = bytes;
            }
            fits
        })
    });
    let hand = Hand::new();
    let runs = Runs(Arc::new(Store::new(
        KEEP,
        None,
        Some(accounts),
        Box::new(hand.clone()),
    )));
    let me = named("me");
    let old = finished(&runs, &me, &"x".repeat(100_000));
    let id = old.id().to_string();
    drop(old);
    assert_eq!(runs.tally().bytes, charged.load(Ordering::Relaxed));
    let writer = runs.begin(start(&me));
    writer.append(&"x".repeat(90_000)).unwrap();
    assert!(runs.find(&id, &me).is_some());
    writer.append(&"x".repeat(90_000)).unwrap();
    assert!(
        runs.find(&id, &me).is_none(),
        "kept runs make room for those that work"
    );
    assert_eq!(writer.append(&"x".repeat(90_000)), Err(StoreFull));
    assert_eq!(writer.run().record().bytes, 270_000);
    writer.finish(End::failed(json!("no room")));
    drop(writer);
    assert!(runs.shrink(1) >= 270_000);
    assert_eq!(
        (charged.load(Ordering::Relaxed), runs.tally()),
        (0, Tally::default())
    );
}

#[test]
fn many_threads_at_once() {
    let (runs, _) = bounded(50, 100_000);
    thread::scope(|scope| {
        for n in 0..8 {
            let runs = runs.clone();
            scope.spawn(move || {
                let me = named(&format!("{}", n % 3));
                for i in 0..100 {
                    let writer = runs.begin(start(&me));
                    writer.append(&"é".repeat(i + 1)).unwrap();
                    if i % 5 == 0 {
                        writer.run().cancel().unwrap();
                    }
                    let listed = runs.list(&me, None, 10).unwrap();
                    assert!(listed.runs.len() <= 10);
                    writer.finish(End::completed());
                    assert_eq!(writer.run().record().chars, i as u64 + 1);
                }
            });
        }
    });
    let tally = runs.tally();
    assert_eq!((tally.working, tally.kept), (0, 50));
    assert_eq!(runs.0.shrink(usize::MAX), tally.bytes);
}
