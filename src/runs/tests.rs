//! Runs in memory, their accounts, and what these tests share with those of the folder.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use serde_json::json;

use crate::access::Identity;
use crate::account::{Account, Accounts, Bounds, Resource};
use crate::sync::lock;
use crate::time::hand::{HandClock, TODAY};
use crate::time::{Clock, SystemClock};

use super::tests_folder::Temporary;
use super::*;

pub(super) const KEEP: Duration = Duration::from_secs(3600);
pub(super) const LONG: Duration = Duration::from_secs(20);

pub(super) fn complete(writer: &RunWriter) {
    writer.finish(RunState::Completed, RunReport::default());
}

/// A caller without authentication.
const KEY: Identity = Identity::Peer(IpAddr::V4(Ipv4Addr::LOCALHOST));

pub(super) fn named(name: &str) -> Identity {
    Identity::Named(name.into())
}

pub(super) fn record(owner: &Identity) -> Record {
    Record {
        keep: KEEP.as_millis() as u64,
        ..Record::new(owner.clone(), vec!["summarize".into()], "m".into())
    }
}

/// As a server with several callers has them: so much memory, so many runs, so many bytes of them.
pub(super) fn accounts(memory: usize, kept: usize, stored: usize) -> Accounts {
    let total = |what| match what {
        Resource::Memory => memory,
        Resource::Kept => kept,
        Resource::Stored => stored,
        _ => 0,
    };
    Accounts::new(Bounds {
        totals: Resource::ALL.map(total),
        runs_per_caller: 0,
        per_minute: 0,
        shared_seats: Some(0),
    })
}

/// Runs, and how they are begun.
pub(super) struct Bench {
    pub(super) runs: Arc<Runs>,
    pub(super) accounts: Accounts,
    pub(super) ahead: Arc<AtomicU64>,
}

/// A clock that can be set ahead by so many milliseconds.
struct AheadClock(Arc<dyn Clock>, Arc<AtomicU64>);

impl Clock for AheadClock {
    fn today(&self) -> u64 {
        self.0.today() + self.1.load(Ordering::Relaxed)
    }

    fn steady(&self) -> Duration {
        self.0.steady() + Duration::from_millis(self.1.load(Ordering::Relaxed))
    }
}

/// Clocks that go as they do.
pub(super) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

impl Bench {
    pub(super) fn new(accounts: Accounts, folder: Option<Arc<Folder>>) -> Bench {
        Bench::at(clock(), accounts, folder)
    }

    fn at(clock: Arc<dyn Clock>, accounts: Accounts, folder: Option<Arc<Folder>>) -> Bench {
        let ahead = Arc::<AtomicU64>::default();
        let clock = Arc::new(AheadClock(clock, ahead.clone()));
        let runs = Runs::new(KEEP, folder, &accounts, clock);
        Bench {
            runs,
            accounts,
            ahead,
        }
    }

    fn account(&self, owner: &Identity) -> Account {
        self.accounts.of(owner)
    }

    pub(super) fn begin(&self, owner: &Identity) -> RunWriter {
        let account = self.account(owner);
        self.runs.begin(record(owner), &account).unwrap()
    }

    pub(super) fn task(&self, owner: &Identity, ttl: Duration) -> Result<RunWriter, QuotaExceeded> {
        let ttl = Some(ttl.as_millis() as u64);
        let record = Record {
            ttl,
            ..record(owner)
        };
        self.runs.begin(record, &self.account(owner))
    }

    /// A finished run.
    pub(super) fn finished(&self, owner: &Identity, text: &str) -> Run {
        let writer = self.begin(owner);
        writer.append(text).unwrap();
        complete(&writer);
        writer.run()
    }

    pub(super) fn find(&self, run: &Run, owner: &Identity) -> Option<Run> {
        self.runs.find(&run.id().to_string(), owner)
    }

    pub(super) fn has(&self, run: &Run, owner: &Identity) -> bool {
        self.find(run, owner).is_some()
    }

    pub(super) fn listed(&self, owner: &Identity) -> Vec<RunId> {
        let all = self.runs.list(owner).unwrap();
        all.iter().map(Run::id).collect()
    }

    /// Is it there after that time?
    pub(super) fn has_after(&self, run: &Run, owner: &Identity, time: Duration) -> bool {
        self.after(time, || self.has(run, owner))
    }

    pub(super) fn tidy_after(&self, time: Duration) {
        self.after(time, || self.runs.tidy());
    }

    fn after<T>(&self, time: Duration, then: impl FnOnce() -> T) -> T {
        self.ahead.store(whole(time), Ordering::Relaxed);
        let found = then();
        self.ahead.store(0, Ordering::Relaxed);
        found
    }
}

fn in_memory() -> Bench {
    Bench::new(Accounts::alone(1 << 30), None)
}

#[test]
fn a_run_is_not_silent_before_its_model_is_asked() {
    let (clock, bench) = by_hand(None);
    let writer = bench.begin(&Identity::Local);
    let silence = || writer.run().silence().as_millis();
    clock.pass(60_000);
    assert_eq!(silence(), 0, "a transcript may take its time");
    writer.append("").unwrap();
    assert_eq!(writer.run().record().updated, TODAY + 60_000);
    clock.pass(5_000);
    clock.set(TODAY + 2 * DAY);
    assert_eq!(silence(), 5_000);
    complete(&writer);
    assert_eq!(silence(), 0);
}

const DAY: u64 = 86_400_000;

/// Runs by a clock that is set by hand.
pub(super) fn by_hand(folder: Option<Arc<Folder>>) -> (HandClock, Bench) {
    let clock = HandClock::default();
    let bench = Bench::at(Arc::new(clock.clone()), Accounts::alone(1 << 30), folder);
    (clock, bench)
}

#[test]
fn a_clock_that_jumps_takes_nothing_of_what_is_known() {
    let at = Temporary::new();
    let folder = || Folder::open(&at.0).unwrap();
    let me = Identity::Local;
    for folder in [None, Some(folder())] {
        let (clock, bench) = by_hand(folder);
        let kept = bench.finished(&me, "x");
        let task = bench.task(&me, KEEP * 2).unwrap();
        complete(&task);
        let works = bench.begin(&me);
        // NTP answers on a board that began in 1970, or is wrong.
        for today in [5, TODAY + 2 * DAY, u64::MAX, 0] {
            clock.set(today);
            complete(&bench.begin(&me));
            for run in [&kept, &task.run(), &works.run()] {
                assert!(bench.has(run, &me) && bench.listed(&me).contains(&run.id()));
                assert!(today > DAY || run.record().created > 0);
            }
        }
        clock.pass(KEEP.as_millis() as u64);
        assert!(!bench.has(&kept, &me) && bench.has(&task.run(), &me));
        assert_eq!(bench.listed(&me).len(), 2, "and what works");
        clock.pass(KEEP.as_millis() as u64);
        assert!(!bench.has(&task.run(), &me));
    }
}

#[test]
fn what_lay_there_before_ages_by_the_time_of_day_until_it_is_loaded() {
    let at = Temporary::new();
    let folder = || Some(Folder::open(&at.0).unwrap());
    let me = Identity::Local;
    let (_, before) = by_hand(folder());
    let run = before.finished(&me, "x");
    let short = Duration::from_millis(1);
    let clock = HandClock::default();
    clock.pass(9);
    let brief = Runs::new(short, folder(), &before.accounts, Arc::new(clock));
    assert!(
        brief.find(&run.id().to_string(), &me).is_some(),
        "kept as long as where it began"
    );
    let half = KEEP.as_millis() as u64 / 2;
    let (clock, loaded) = by_hand(folder());
    clock.pass(half);
    assert_eq!(loaded.listed(&me), [run.id()]);
    clock.set(TODAY + 2 * DAY);
    assert_eq!(loaded.listed(&me), [run.id()]);
    let (clock, later) = by_hand(folder());
    clock.set(TODAY + 2 * half);
    assert!(!later.has(&run, &me), "too old when it is first seen");
    assert!(loaded.has_after(&run, &me, KEEP / 2 - LONG));
    assert!(!loaded.has_after(&run, &me, KEEP / 2));
}

#[test]
fn a_run_is_read_while_it_is_written() {
    let (bench, me) = (in_memory(), named("me"));
    let writer = bench.begin(&me);
    let run = bench.find(&writer.run(), &me).unwrap();
    let wait = |seen, limit| {
        let record = run.wait(seen, limit);
        (record.bytes, record.state)
    };
    assert_eq!(wait(0, Duration::ZERO), (0, RunState::Working));
    writer.append("aé漢").unwrap();
    assert_eq!(wait(0, LONG), (6, RunState::Working));
    let found = (run.read(0, 99), run.read(1, 2));
    assert_eq!(found, ("aé漢".into(), "é".into()));
    let part = |skip, most| run.read_chars(skip, most);
    assert_eq!([part(1, 1), part(2, 9), part(3, 1)], ["é", "漢", ""]);
    let report = RunReport {
        usage: Some(json!({"output_tokens": 3})),
        ..RunReport::default()
    };
    writer.finish(RunState::Completed, report.clone());
    assert_eq!(wait(u64::MAX, LONG), (6, RunState::Completed));
    let record = run.record();
    assert_eq!((record.bytes, record.chars, run.chars()), (6, Some(3), 3));
    assert!(0 < record.created && record.created <= record.updated);
    assert_eq!(record.ended, Some(record.updated));
    let found = (record.state, &record.report);
    assert_eq!(found, (RunState::Completed, &report));
}

#[test]
fn characters_are_found_in_a_long_text() {
    let bench = in_memory();
    let text = "aé漢🎼b".repeat(20_000);
    let run = bench.finished(&Identity::Local, &text);
    for (skip, most) in [(0, 3), (7_000, 20_000), (99_990, 99), (100_000, 1), (4, 0)] {
        let part: String = text.chars().skip(skip).take(most).collect();
        assert_eq!(run.read_chars(skip, most), part, "{skip} {most}");
    }
}

#[test]
fn whoever_waits_is_woken() {
    let bench = in_memory();
    let writer = bench.begin(&Identity::Local);
    let run = writer.run();
    let (tells, told) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        while run.wait(text.len() as u64, LONG).bytes > text.len() as u64 {
            text.push_str(&run.read(text.len() as u64, 7));
            let _ = tells.send(());
        }
        (text, run.record().state)
    });
    for n in 0..1000 {
        writer.append(&format!("{n} é")).unwrap();
        // One by one at first, so that nothing else can wake it.
        assert!(n > 99 || told.recv_timeout(LONG / 2).is_ok(), "{n}");
    }
    writer.finish(RunState::Failed, RunReport::default());
    let all: String = (0..1000).map(|n| format!("{n} é")).collect();
    assert_eq!(reader.join().unwrap(), (all, RunState::Failed));
}

#[test]
fn news_are_more_text_or_an_end() {
    let mut record = record(&Identity::Local);
    record.bytes = 5;
    assert!(record.has_news(4) && !record.has_news(5) && !record.has_news(u64::MAX));
    record.end(RunState::Completed, 5);
    assert!(record.has_news(u64::MAX));
}

#[test]
fn unknown_and_foreign_runs_are_the_same() {
    let bench = in_memory();
    let owners = [named("me"), named("you"), Identity::Local, KEY];
    for owner in &owners {
        let id = bench.finished(owner, "x").id().to_string();
        for other in &owners {
            // Who can open the folder may read every file in it.
            let may = owner == other || *other == Identity::Local;
            assert_eq!(bench.runs.find(&id, other).is_some(), may);
        }
        assert!(bench.runs.find(&id.to_uppercase(), owner).is_none());
    }
    for id in [&format!("run_{}", "0".repeat(32)), "../../etc/passwd"] {
        assert!(bench.runs.find(id, &owners[0]).is_none());
    }
    assert!(bench.runs.list(&KEY).is_none());
    assert_eq!(bench.listed(&owners[0]).len(), 1);
}

#[test]
fn a_run_is_kept_for_its_time_and_read_by_who_holds_it() {
    let (bench, me) = (in_memory(), named("me"));
    let writer = bench.begin(&me);
    bench.tidy_after(KEEP * 9);
    assert!(bench.has(&writer.run(), &me), "what works has no age");
    writer.append("text").unwrap();
    complete(&writer);
    let run = writer.run();
    assert!(bench.has_after(&run, &me, KEEP - LONG));
    assert!(!bench.has_after(&run, &me, KEEP));
    bench.tidy_after(KEEP);
    assert!(!bench.has(&run, &me) && bench.listed(&me).is_empty());
    assert_eq!(run.read(0, 99), "text");
    assert_eq!(bench.accounts.used(Resource::Kept), 0);
    assert!(bench.accounts.used(Resource::Memory) > 0);
    drop((run, writer));
    assert_eq!(bench.accounts.used(Resource::Memory), 0);
    assert_eq!(bench.accounts.used(Resource::Stored), 0);
}

#[test]
fn a_callers_oldest_go_first_and_anothers_never() {
    let hand = HandClock::default();
    let bench = Bench::at(Arc::new(hand.clone()), accounts(1 << 30, 8, 1 << 30), None);
    let (me, you) = (named("me"), named("you"));
    let yours = bench.finished(&you, "1");
    let mine: Vec<Run> = (0..9)
        .map(|_| {
            hand.pass(1);
            bench.finished(&me, "2")
        })
        .collect();
    let left = mine.iter().filter(|run| bench.has(run, &me)).count();
    assert_eq!(left, 6, "three quarters of what is not yours");
    assert!(mine[3..].iter().all(|run| bench.has(run, &me)));
    assert!(bench.has(&yours, &you) && bench.has(&bench.finished(&you, "3"), &you));
    let working: Vec<RunWriter> = (0..5).map(|_| bench.begin(&me)).collect();
    assert!(!mine.iter().any(|run| bench.has(run, &me)));
    let one_more = bench.begin(&me);
    assert!(!one_more.persist(), "it goes on, but nobody gets its id");
    assert!(one_more.promise(LONG).is_err());
    working.iter().for_each(complete);
    assert!(working.iter().all(|writer| bench.has(&writer.run(), &me)));
    assert!(bench.has(&yours, &you));
}

#[test]
fn bytes_are_charged_as_they_come() {
    let bench = Bench::new(accounts(1 << 30, 99, 400 << 10), None);
    let (me, you) = (named("me"), named("you"));
    bench.finished(&you, &"x".repeat(40 << 10));
    let mine = bench.finished(&me, &"x".repeat(200 << 10));
    let writer = bench.begin(&me);
    writer.append(&"x".repeat(50 << 10)).unwrap();
    assert!(bench.has(&mine, &me));
    writer.append(&"x".repeat(50 << 10)).unwrap();
    assert!(!bench.has(&mine, &me), "it made room");
    let given = bench.begin(&you);
    assert!(given.persist());
    given.append(&"x".repeat(300 << 10)).unwrap();
    writer.append(&"x".repeat(300 << 10)).unwrap();
    [&given, &writer].into_iter().for_each(complete);
    assert!(bench.has(&given.run(), &you), "who has its id finds it");
    assert!(!bench.has(&writer.run(), &me), "too long to be kept");
}

#[test]
fn what_is_promised_is_reserved_and_stays() {
    let bench = Bench::new(accounts(1 << 30, 99, 640 << 10), None);
    let (me, you) = (named("me"), named("you"));
    let tasks = Vec::from_iter(std::iter::from_fn(|| bench.task(&me, KEEP * 2).ok()));
    let found = (tasks.len(), bench.listed(&me).len());
    assert_eq!(found, (7, 7), "64 KiB each, about three quarters");
    assert_eq!(tasks[0].run().record().ttl, Some(7_200_000));
    let ordinary = bench.begin(&me);
    assert_eq!(ordinary.promise(KEEP), Err(QuotaExceeded));
    assert_eq!(ordinary.run().record().ttl, None);
    bench.runs.forget(ordinary.run().id());
    assert!(ordinary.promise(KEEP).is_err(), "nobody can find it");
    tasks[0].append(&"x".repeat(64 << 10)).unwrap();
    assert_eq!(tasks[0].append(&"x".repeat(64 << 10)), Err(QuotaExceeded));
    assert!(bench.task(&you, KEEP).is_ok(), "others have what is left");
    tasks.iter().for_each(complete);
    assert!(bench.task(&me, KEEP).is_ok(), "they were shorter");
    let has = |time| bench.has_after(&tasks[1].run(), &me, time);
    assert!(has(KEEP) && !has(KEEP * 2), "kept by the promise alone");
}

#[test]
fn what_a_failed_run_has_beside_its_text_counts() {
    let bench = Bench::new(accounts(1 << 30, 99, 1 << 30), None);
    let me = named("me");
    let writer = bench.begin(&me);
    let report = RunReport {
        partial: vec!["x".repeat(100 << 10)],
        ..RunReport::default()
    };
    writer.finish(RunState::Failed, report);
    assert!(bench.accounts.used(Resource::Stored) > 100 << 10);
    assert!(bench.accounts.used(Resource::Memory) > 200 << 10);
}

#[test]
fn memory_is_taken_from_ones_own_kept_runs() {
    let bench = Bench::new(accounts(1 << 20, 99, 1 << 30), None);
    let (me, you) = (named("me"), named("you"));
    let text = "x".repeat(100 << 10);
    let yours = bench.finished(&you, &text).id().to_string();
    let mine = bench.finished(&me, &text).id().to_string();
    let has = |id: &str, owner| bench.runs.find(id, owner).is_some();
    let writer = bench.begin(&me);
    while has(&mine, &me) {
        writer.append(&text).unwrap();
    }
    while writer.append(&text).is_ok() {}
    let bytes = writer.run().record().bytes;
    let found = writer.run().read(bytes - 2, 9);
    assert_eq!(found, "xx", "kept, but no more is to come");
    writer.finish(RunState::Failed, RunReport::default());
    drop(writer);
    let mut greedy = bench.account(&me).open(Resource::Memory);
    assert!(greedy.grow(600 << 10).is_ok() && bench.listed(&me).is_empty());
    assert!(greedy.grow(1 << 20).is_err() && has(&yours, &you));
    while greedy.grow(1 << 12).is_ok() {}
    assert!(bench.runs.begin(record(&me), &bench.account(&me)).is_err());
}

#[test]
fn cancelled_is_seen_at_once_and_stays() {
    let bench = in_memory();
    let writer = bench.begin(&Identity::Local);
    let run = writer.run();
    writer.append("so far").unwrap();
    assert!(!writer.is_cancelled());
    assert!(run.cancel().unwrap() && writer.is_cancelled() && !run.cancel().unwrap());
    assert_eq!(run.wait(u64::MAX, LONG).state, RunState::Cancelled);
    writer.append(", and on").unwrap();
    let report = RunReport {
        usage: Some(json!(1)),
        ..RunReport::default()
    };
    writer.finish(RunState::Completed, report);
    let record = run.record();
    let found = (record.state, &record.report.usage);
    assert_eq!(found, (RunState::Cancelled, &Some(json!(1))));
    assert_eq!(run.read(0, 99), "so far");
    writer.finish(RunState::Failed, RunReport::default());
    assert_eq!(run.record(), record, "the first end counts");
    let done = bench.finished(&Identity::Local, "x");
    assert!(!done.cancel().unwrap());
    assert_eq!(done.record().state, RunState::Completed);
}

#[test]
fn a_worker_that_goes_leaves_an_interrupted_run() {
    let bench = in_memory();
    let writer = bench.begin(&Identity::Local);
    writer.append("half").unwrap();
    let run = writer.run();
    drop(writer);
    assert_eq!(run.record().state, RunState::Interrupted);
    assert_eq!(run.read(0, 9), "half");
}

#[test]
fn a_run_ends_while_the_folder_is_swept() {
    let (bench, (tell, told)) = (in_memory(), mpsc::channel());
    let swept = lock(&bench.runs.swept);
    thread::scope(|scope| {
        scope.spawn(|| tell.send(bench.finished(&Identity::Local, "x").id()));
        let ended = told.recv_timeout(Duration::from_secs(10));
        drop(swept);
        assert!(ended.is_ok(), "it waits for the sweep");
    });
}

#[test]
fn the_end_of_the_process_interrupts_what_works() {
    let bench = in_memory();
    let done = bench.finished(&Identity::Local, "x");
    let writers = [(); 3].map(|()| bench.begin(&Identity::Local));
    assert!(writers[2].run().cancel().unwrap());
    assert_eq!(bench.runs.kept(), 1);
    bench.runs.interrupt_all();
    assert_eq!(bench.runs.kept(), 4);
    assert!(writers.iter().all(RunWriter::is_cancelled));
    writers[0].finish(RunState::Cancelled, RunReport::default());
    let states = writers.each_ref().map(|writer| writer.run().record().state);
    let interrupted = RunState::Interrupted;
    assert_eq!(states, [interrupted, interrupted, RunState::Cancelled]);
    assert_eq!(done.record().state, RunState::Completed);
}

#[test]
fn many_threads_at_once() {
    let bench = Bench::new(accounts(1 << 30, 50, 1 << 20), None);
    thread::scope(|scope| {
        for n in 0..8 {
            let bench = &bench;
            scope.spawn(move || {
                let me = named(&format!("{}", n % 3));
                for i in 0..100 {
                    let writer = bench.begin(&me);
                    writer.append(&"é".repeat(i + 1)).unwrap();
                    if i % 5 == 0 {
                        writer.run().cancel().unwrap();
                    }
                    assert!(!bench.runs.list(&me).unwrap().is_empty());
                    complete(&writer);
                    assert_eq!(writer.run().chars(), i as u64 + 1);
                }
            });
        }
    });
    let kept = bench.runs.kept();
    assert!((20..=50).contains(&kept), "{kept}");
    assert_eq!(bench.accounts.used(Resource::Kept), kept);
    bench.tidy_after(KEEP);
    let used = [Resource::Kept, Resource::Stored, Resource::Memory];
    assert_eq!(used.map(|what| bench.accounts.used(what)), [0, 0, 0]);
}
