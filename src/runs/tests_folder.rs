//! The state folder, shared by several stores as by several processes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::SystemTime;

use serde_json::json;

use super::tests::{Hand, KEEP, LONG, finished, named, start};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A folder of its own, gone with the test.
pub(super) struct Temporary(pub(super) PathBuf);

impl Temporary {
    pub(super) fn new() -> Temporary {
        Temporary(std::env::temp_dir().join(format!("fabric-mcp-{}", RunId::new())))
    }

    /// Where a file of a run is, and its folder.
    pub(super) fn file(&self, id: &RunId, ending: &str) -> PathBuf {
        let shard = self.0.join(&id.to_string()["run_".len()..][..2]);
        fs::create_dir_all(&shard).unwrap();
        shard.join(format!("{id}.{ending}"))
    }

    /// The names of the files in it.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = list(&self.0)
            .flat_map(|path| {
                if path.is_dir() {
                    list(&path).collect()
                } else {
                    vec![path]
                }
            })
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }

    /// A metadata file, as somebody left it.
    fn leave(&self, record: &Record) {
        fs::write(
            self.file(&record.id, "json"),
            serde_json::to_vec(record).unwrap(),
        )
        .unwrap();
    }
}

fn list(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// As another process would open it.
pub(super) fn process(at: &Temporary, hand: &Hand) -> Runs {
    bounded(at, hand, (10_000, 1 << 30))
}

pub(super) fn one_process() -> (Temporary, Hand, Runs) {
    let (at, hand) = (Temporary::new(), Hand::new());
    let runs = process(&at, &hand);
    (at, hand, runs)
}

fn bounded(at: &Temporary, hand: &Hand, bounds: (usize, u64)) -> Runs {
    let folder = Folder::open(&at.0).unwrap();
    let store = Store::new(KEEP, Some(folder), None, Box::new(hand.clone()));
    Runs(Arc::new(store.bounded((1000, 64 << 20), bounds)))
}

pub(super) fn find(runs: &Runs, run: &Run) -> Option<Run> {
    runs.find(&run.id().to_string(), &Owner::Folder)
}

fn working(hand: &Hand) -> Record {
    start(&Owner::Folder).record(RunId::new(), clock::Clock::today(hand))
}

/// Older than what somebody may still be writing.
fn age(path: &Path) {
    let old = SystemTime::now() - Duration::from_secs(3600);
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(old)
        .unwrap();
}

#[test]
fn a_run_is_two_files_that_only_we_can_read() {
    let (at, hand, runs) = one_process();
    let writer = runs.begin(start(&Owner::Folder));
    let id = writer.run().id();
    writer.append("aé").unwrap();
    assert_eq!(at.names(), [format!("{id}.json"), format!("{id}.lock")]);
    hand.pass(SECOND);
    assert!(!writer.is_cancelled());
    assert_eq!(
        at.names(),
        [
            format!("{id}.json"),
            format!("{id}.lock"),
            format!("{id}.txt")
        ]
    );
    writer.append("漢").unwrap();
    writer.finish(End::completed().with_result(json!({"a": 1})));
    assert_eq!(at.names(), [format!("{id}.json"), format!("{id}.txt")]);
    assert_eq!(fs::read_to_string(at.file(&id, "txt")).unwrap(), "aé漢");
    let json = format!(
        r#"{{"version":1,"id":"{id}","owner":"folder","patterns":["summarize"],"model":"m","state":"completed","created":1000000,"updated":1001000,"ended":1001000,"ttl":null,"bytes":6,"chars":3,"result":{{"a":1}}}}"#
    );
    assert_eq!(fs::read_to_string(at.file(&id, "json")).unwrap(), json);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (
                mode(&at.0),
                mode(&at.file(&id, "json")),
                mode(&at.file(&id, "txt"))
            ),
            (0o700, 0o600, 0o600)
        );
    }
}

#[test]
fn nothing_is_written_for_the_process_alone_or_where_nothing_is_kept() {
    let (at, hand, runs) = one_process();
    finished(&runs, &Owner::Process, "x");
    let none = Store::new(
        Duration::ZERO,
        Some(Folder::open(&at.0).unwrap()),
        None,
        Box::new(hand),
    );
    finished(&Runs(Arc::new(none)), &Owner::Folder, "x");
    assert_eq!(at.names(), Vec::<String>::new());
}

#[test]
fn making_room_in_memory_takes_nothing_from_the_folder() {
    let (at, _hand, runs) = one_process();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let shrinking = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                runs.shrink(usize::MAX);
            }
        });
        (0..200).for_each(|_| drop(finished(&runs, &Owner::Folder, "x")));
        ended.store(true, Ordering::Relaxed);
        shrinking.join().unwrap();
    });
    assert_eq!(
        at.names()
            .iter()
            .filter(|name| name.ends_with(".json"))
            .count(),
        200
    );
}

#[test]
fn what_was_promised_is_on_disk_before_it_is_told() {
    let (at, hand, runs) = one_process();
    let task = runs.begin_task(start(&Owner::Folder), SECOND).unwrap();
    let other = process(&at, &hand);
    assert_eq!(find(&other, &task.run()).unwrap().record().ttl, Some(1000));
    let writer = runs.begin(start(&Owner::Folder));
    writer.run().promise(2 * SECOND).unwrap();
    writer.run().persist();
    assert_eq!(
        find(&other, &writer.run()).unwrap().record().ttl,
        Some(2000)
    );
    assert_eq!(
        find(&other, &writer.run()).unwrap().promise(SECOND),
        Err(StoreFull),
        "another's"
    );
}

#[test]
fn processes_answer_for_each_other() {
    let (at, hand) = (Temporary::new(), Hand::new());
    let (mine, other) = (process(&at, &hand), process(&at, &hand));
    let writer = mine.begin(start(&Owner::Folder));
    let run = find(&other, &writer.run()).unwrap();
    assert_eq!(
        (
            run.record().state,
            run.wait(Some(0), Duration::ZERO, &mut || true)
        ),
        (RunState::Working, Waited::TimedOut)
    );
    writer.append("aé漢").unwrap();
    hand.pass(SECOND);
    writer.is_cancelled();
    assert_eq!(run.wait(Some(0), LONG, &mut || true), Waited::More);
    assert_eq!(
        (run.read(0, 99), run.read(1, 2), run.read_chars(1, 9)),
        ("aé漢".into(), "é".into(), "é漢".into())
    );
    assert_eq!((run.record().bytes, run.record().chars), (6, 3));
    let listed = other.list(&Owner::Folder, None, 9).unwrap();
    assert_eq!(
        listed.runs.iter().map(Run::id).collect::<Vec<_>>(),
        [run.id()]
    );
    assert!(other.find(&run.id().to_string(), &named("x")).is_none());
    assert_eq!(other.list(&named("x"), None, 9).unwrap().runs.len(), 0);
    writer.append("!").unwrap();
    writer.finish(End::completed());
    assert_eq!(run.wait(None, LONG, &mut || true), Waited::Ended);
    assert_eq!(
        (run.record().state, run.read(0, 99)),
        (RunState::Completed, "aé漢!".into())
    );
    assert_eq!(find(&mine, &run).unwrap().read(6, 9), "!");
    let next = finished(&mine, &Owner::Folder, "");
    assert_eq!(
        other.list(&Owner::Folder, None, 9).unwrap().runs.len(),
        2,
        "{}",
        next.id()
    );
}

#[test]
fn another_process_cancels() {
    let (at, hand) = (Temporary::new(), Hand::new());
    let (mine, other, third) = (
        process(&at, &hand),
        process(&at, &hand),
        process(&at, &hand),
    );
    let writer = mine.begin(start(&Owner::Folder));
    let run = find(&other, &writer.run()).unwrap();
    assert!(run.cancel().unwrap() && !run.cancel().unwrap());
    assert_eq!(
        run.record().state,
        RunState::Cancelled,
        "from the answer on"
    );
    assert_eq!(
        find(&third, &run).unwrap().record().state,
        RunState::Cancelled
    );
    assert!(!writer.is_cancelled(), "not looked at yet");
    hand.pass(SECOND);
    assert!(writer.is_cancelled());
    writer.finish(End::cancelled());
    assert_eq!(
        (run.record().state, at.names().len()),
        (RunState::Cancelled, 1)
    );
    assert!(!find(&other, &run).unwrap().cancel().unwrap());
}

#[test]
fn a_word_from_another_process_comes_before_the_end() {
    let (at, hand) = (Temporary::new(), Hand::new());
    let (mine, other) = (process(&at, &hand), process(&at, &hand));
    let writer = mine.begin(start(&Owner::Folder));
    assert!(find(&other, &writer.run()).unwrap().cancel().unwrap());
    assert_eq!(
        find(&mine, &writer.run()).unwrap().record().state,
        RunState::Cancelled,
        "looked at when asked"
    );
    writer.finish(End::completed());
    let late = mine.begin(start(&Owner::Folder));
    assert!(find(&other, &late.run()).unwrap().cancel().unwrap());
    late.finish(End::completed());
    for run in [writer.run(), late.run()] {
        assert_eq!(
            (
                run.record().state,
                find(&other, &run).unwrap().record().state
            ),
            (RunState::Cancelled, RunState::Cancelled)
        );
    }
    let own = mine.begin(start(&Owner::Folder));
    assert!(own.run().cancel().unwrap());
    assert_eq!(
        find(&other, &own.run()).unwrap().record().state,
        RunState::Cancelled,
        "before its worker has noticed"
    );
}

#[test]
fn a_dead_owner_leaves_an_interrupted_run() {
    let (at, hand, runs) = one_process();
    let dead = working(&hand);
    at.leave(&dead);
    fs::write(at.file(&dead.id, "lock"), "").unwrap();
    fs::write(at.file(&dead.id, "txt"), &"aé漢".as_bytes()[..5]).unwrap();
    hand.pass(KEEP * 5);
    let run = runs.find(&dead.id.to_string(), &Owner::Folder).unwrap();
    let record = run.record();
    assert_eq!(
        (record.state, record.bytes, record.chars),
        (RunState::Interrupted, 3, 2)
    );
    assert_eq!(
        (record.ended, run.read(0, 99)),
        (Some(19_000_000), "aé".into())
    );
    assert_eq!(
        at.names(),
        [format!("{}.json", dead.id), format!("{}.txt", dead.id)]
    );
    hand.pass(KEEP - SECOND);
    assert!(find(&runs, &run).is_some(), "kept from when it was found");

    let marked = working(&hand);
    at.leave(&marked);
    fs::write(at.file(&marked.id, "cancel"), "").unwrap();
    let states: Vec<RunState> = runs
        .list(&Owner::Folder, None, 9)
        .unwrap()
        .runs
        .iter()
        .map(|run| run.record().state)
        .collect();
    assert_eq!(states, [RunState::Cancelled, RunState::Interrupted]);
}

#[test]
fn many_who_look_at_a_dead_run_at_once_do_not_take_each_other_for_its_owner() {
    let (at, hand, runs) = one_process();
    for _ in 0..20 {
        let dead = working(&hand);
        at.leave(&dead);
        fs::write(at.file(&dead.id, "lock"), "").unwrap();
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let run = runs.find(&dead.id.to_string(), &Owner::Folder).unwrap();
                    assert_eq!(run.record().state, RunState::Interrupted);
                });
            }
        });
    }
}

#[test]
fn a_finished_run_that_lost_its_text_says_so() {
    let (at, _, runs) = one_process();
    let run = finished(&runs, &Owner::Folder, "aé漢");
    File::options()
        .write(true)
        .open(at.file(&run.id(), "txt"))
        .unwrap()
        .set_len(2)
        .unwrap();
    let found = find(&runs, &run).unwrap();
    assert_eq!(
        (found.record().state, found.record().chars, found.read(0, 9)),
        (RunState::Interrupted, 1, "a".into())
    );
    fs::write(at.file(&run.id(), "txt"), "aé漢 and more").unwrap();
    let found = find(&runs, &run).unwrap();
    assert_eq!(
        (
            found.record().state,
            found.read(0, 99),
            found.read_chars(1, 99)
        ),
        (RunState::Completed, "aé漢".into(), "é漢".into())
    );
    fs::write(at.file(&run.id(), "txt"), b"a\xFF\xFFbcd").unwrap();
    assert_eq!(
        find(&runs, &run).unwrap().read(0, 99),
        "a\u{FFFD}\u{FFFD}bcd"
    );
}

#[test]
fn what_is_damaged_is_passed_over_and_swept_when_old() {
    let (at, hand, runs) = one_process();
    let good = finished(&runs, &Owner::Folder, "x");
    let mut strange = Vec::new();
    let mut leave = |ending: &str, content: &[u8]| {
        let id = RunId::new();
        fs::write(at.file(&id, ending), content).unwrap();
        strange.push(at.file(&id, ending));
        id
    };
    let mut ids = vec![
        leave("json.tmp", b"{\"ver"),
        leave("json", b""),
        leave("txt", b"text"),
        leave("lock", b""),
    ];
    ids.push(leave("json", b"[1]"));
    ids.push(leave("json", &vec![b' '; 2 << 20]));
    ids.push(leave("json", &serde_json::to_vec(&working(&hand)).unwrap()));
    ids.push(leave("cancel", b""));
    let newer = leave("json", br#"{"version":2,"what":"ever"}"#);
    fs::write(at.0.join("notes.txt"), "mine").unwrap();
    fs::create_dir(at.file(&RunId::new(), "json")).unwrap();

    let listed = |runs: &Runs| runs.list(&Owner::Folder, None, 99).unwrap().runs.len();
    assert_eq!(listed(&runs), 1);
    ids.iter()
        .chain([&newer])
        .for_each(|id| assert!(runs.find(&id.to_string(), &Owner::Folder).is_none()));
    assert!(
        strange.iter().all(|path| path.exists()),
        "somebody may be writing it"
    );
    strange.iter().for_each(|path| age(path));
    age(&at.0.join("notes.txt"));
    assert_eq!(listed(&process(&at, &hand)), 1);
    let left: Vec<String> = at.names();
    assert_eq!(left.len(), 5, "{left:?}");
    assert!(at.file(&newer, "json").exists() && at.0.join("notes.txt").exists());
    assert_eq!(find(&runs, &good).unwrap().read(0, 9), "x");
}

#[cfg(unix)]
#[test]
fn nothing_is_followed_and_nothing_hangs() {
    use std::os::unix::fs::symlink;
    use std::process::Command;
    let (at, hand, runs) = one_process();
    let outside = Temporary::new();
    fs::create_dir(&outside.0).unwrap();
    let secret = outside.0.join("secret");
    fs::write(&secret, "secret").unwrap();

    let (linked, piped, text) = (
        working(&hand),
        working(&hand),
        finished(&runs, &Owner::Folder, "secret"),
    );
    fs::write(outside.0.join("json"), serde_json::to_vec(&linked).unwrap()).unwrap();
    symlink(outside.0.join("json"), at.file(&linked.id, "json")).unwrap();
    for ending in ["json", "txt", "lock", "cancel"] {
        assert!(
            Command::new("mkfifo")
                .arg(at.file(&piped.id, ending))
                .status()
                .unwrap()
                .success()
        );
    }
    fs::remove_file(at.file(&text.id(), "txt")).unwrap();
    symlink(&secret, at.file(&text.id(), "txt")).unwrap();
    for id in [linked.id, piped.id] {
        assert!(runs.find(&id.to_string(), &Owner::Folder).is_none());
    }
    let found = find(&runs, &text).unwrap();
    assert_eq!(
        (
            found.record().state,
            found.read(0, 99),
            found.read_chars(0, 99)
        ),
        (RunState::Interrupted, String::new(), String::new())
    );
    assert_eq!(runs.list(&Owner::Folder, None, 9).unwrap().runs.len(), 1);

    let working = working(&hand);
    at.leave(&working);
    symlink(&secret, at.file(&working.id, "json.tmp")).unwrap();
    assert_eq!(
        runs.find(&working.id.to_string(), &Owner::Folder)
            .unwrap()
            .record()
            .state,
        RunState::Interrupted
    );
    assert_eq!(
        fs::read_to_string(&secret).unwrap(),
        "secret",
        "not written through the link"
    );
    hand.pass(KEEP * 2);
    runs.sweep();
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
}

#[test]
fn a_disk_that_fails_costs_a_warning() {
    let (at, hand, runs) = one_process();
    let writer = runs.begin(start(&Owner::Folder));
    let run = writer.run();
    // In the way of the text.
    fs::create_dir(at.file(&run.id(), "txt")).unwrap();
    writer.append("one ").unwrap();
    hand.pass(SECOND);
    assert!(!writer.is_cancelled());
    writer.append("two").unwrap();
    writer.finish(End::completed());
    let found = find(&runs, &run).unwrap();
    assert_eq!(
        (found.record().state, found.read(0, 99)),
        (RunState::Completed, "one two".into())
    );

    let better = runs.begin(start(&Owner::Folder));
    fs::create_dir(at.file(&better.run().id(), "txt")).unwrap();
    better.append("one ").unwrap();
    hand.pass(SECOND);
    better.append("two").unwrap();
    fs::remove_dir(at.file(&better.run().id(), "txt")).unwrap();
    better.finish(End::completed());
    assert_eq!(
        find(&process(&at, &hand), &better.run())
            .unwrap()
            .read(0, 99),
        "one two",
        "all of it is written later"
    );

    let unlisted = finished(&runs, &Owner::Folder, "x");
    fs::remove_dir_all(&at.0).unwrap();
    let gone = runs.begin_task(start(&Owner::Folder), KEEP).unwrap();
    gone.append("text").unwrap();
    gone.finish(End::completed());
    assert_eq!(find(&runs, &gone.run()).unwrap().read(0, 99), "text");
    assert!(find(&runs, &unlisted).is_none());
}

#[test]
fn a_result_that_is_too_large_for_a_file_stays_in_memory() {
    let (_at, _, runs) = one_process();
    let writer = runs.begin(start(&Owner::Folder));
    writer.finish(End::completed().with_result(json!("x".repeat(2 << 20))));
    assert_eq!(
        find(&runs, &writer.run()).unwrap().record().state,
        RunState::Completed
    );
}

#[test]
fn a_process_that_starts_takes_no_folder_from_under_another() {
    let at = Temporary::new();
    (0..=u8::MAX).for_each(|shard| fs::create_dir_all(at.0.join(format!("{shard:02x}"))).unwrap());
    Folder::open(&at.0).unwrap();
    assert_eq!(
        list(&at.0).count(),
        256,
        "another may be about to create a file in it"
    );
}

#[test]
fn a_folder_that_somebody_removed_is_made_again() {
    let (at, hand, runs) = one_process();
    for _ in 0..3 {
        let writer = runs.begin(start(&Owner::Folder));
        let shard = at
            .file(&writer.run().id(), "json")
            .parent()
            .unwrap()
            .to_owned();
        fs::remove_dir_all(&shard).unwrap();
        writer.append("text").unwrap();
        writer.finish(End::completed());
        assert_eq!(
            find(&process(&at, &hand), &writer.run())
                .unwrap()
                .read(0, 9),
            "text"
        );
    }
}

#[test]
fn the_folder_is_swept_by_age_and_size() {
    let (at, hand) = (Temporary::new(), Hand::new());
    let runs = bounded(&at, &hand, (3, 100));
    let old: Vec<Run> = (0..4)
        .map(|_| {
            hand.pass(SECOND);
            finished(&runs, &Owner::Folder, "x")
        })
        .collect();
    assert!(find(&runs, &old[0]).is_none() && find(&runs, &old[1]).is_some());
    hand.pass(SECOND);
    let large = finished(&runs, &Owner::Folder, &"x".repeat(100));
    assert_eq!(
        at.names(),
        [
            format!("{}.json", large.id()),
            format!("{}.txt", large.id())
        ]
    );
    hand.pass(KEEP);
    runs.sweep();
    assert_eq!(at.names(), Vec::<String>::new());

    let task = runs.begin_task(start(&Owner::Folder), KEEP * 3).unwrap();
    task.finish(End::completed());
    hand.pass(KEEP * 2);
    let next = bounded(&at, &hand, (1, 100));
    next.sweep();
    assert!(
        find(&next, &task.run()).is_some(),
        "promised, in a file too"
    );
    assert_eq!(
        next.begin_task(start(&Owner::Folder), KEEP).err(),
        Some(StoreFull),
        "what other processes promised counts"
    );
    hand.pass(KEEP);
    next.sweep();
    assert_eq!(at.names(), Vec::<String>::new());
}

#[test]
fn what_others_remove_is_gone() {
    let (at, hand) = (Temporary::new(), Hand::new());
    let (mine, other) = (process(&at, &hand), process(&at, &hand));
    let run = finished(&mine, &Owner::Folder, "x");
    let held = find(&other, &run).unwrap();
    fs::remove_file(at.file(&run.id(), "json")).unwrap();
    fs::remove_file(at.file(&run.id(), "txt")).unwrap();
    assert!(find(&mine, &run).is_none() && find(&other, &run).is_none());
    assert_eq!(mine.list(&Owner::Folder, None, 9).unwrap().runs.len(), 0);
    assert_eq!(mine.tally().kept, 0);
    assert_eq!(held.read(0, 9), "");
    assert_eq!(run.read(0, 9), "x", "of this process");
}

#[cfg(unix)]
#[test]
fn only_what_has_changed_is_read_again() {
    let (at, hand, runs) = one_process();
    let made: Vec<Run> = (0..3)
        .map(|_| finished(&runs, &Owner::Folder, "x"))
        .collect();
    let old = SystemTime::now() - Duration::from_secs(3600);
    let age_all = || {
        for shard in list(&at.0) {
            File::open(shard).unwrap().set_modified(old).unwrap();
        }
    };
    let listed = || runs.list(&Owner::Folder, None, 9).unwrap().runs.len();
    age_all();
    assert_eq!(listed(), 3);
    // The folder looks as before: it is not read.
    fs::remove_file(at.file(&made[0].id(), "json")).unwrap();
    age_all();
    assert_eq!(
        (runs.tally().kept, listed()),
        (3, 2),
        "known, but not found"
    );
    assert_eq!(runs.tally().kept, 3);
    fs::remove_file(at.file(&made[1].id(), "json")).unwrap();
    assert_eq!(listed(), 1, "and what did not change is still known");
    let other = finished(&process(&at, &hand), &Owner::Folder, "y");
    assert_eq!(listed(), 2, "{}", other.id());
}

#[test]
fn a_clock_that_was_set_back_sweeps_nothing() {
    let (at, hand) = (Temporary::new(), Hand::new());
    let run = finished(&process(&at, &hand), &Owner::Folder, "x");
    let early = Hand::new();
    let runs = process(&at, &early);
    hand.pass(KEEP);
    runs.sweep();
    assert!(find(&runs, &run).is_some());
    early.pass(KEEP);
    runs.sweep();
    assert!(find(&runs, &run).is_none());
}

#[test]
fn the_end_of_the_process_is_written() {
    let (at, hand, runs) = one_process();
    let writer = runs.begin(start(&Owner::Folder));
    writer.append("half").unwrap();
    runs.interrupt_all();
    let found = find(&process(&at, &hand), &writer.run()).unwrap();
    assert_eq!(
        (found.record().state, found.read(0, 9)),
        (RunState::Interrupted, "half".into())
    );
}

#[test]
fn folders_that_will_not_do_are_refused() {
    let at = Temporary::new();
    fs::write(&at.0, "a file").unwrap();
    assert!(
        Folder::open(&at.0)
            .err()
            .unwrap()
            .contains("cannot be used")
    );
    fs::remove_file(&at.0).unwrap();
    Folder::open(&at.0.join("deep/er")).unwrap();
    assert_eq!(
        list(&at.0.join("deep/er"))
            .flat_map(|shard| list(&shard))
            .count(),
        0
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&at.0, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(
            Folder::open(&at.0)
                .err()
                .unwrap()
                .contains("others can write to it: chmod 700")
        );
        fs::set_permissions(&at.0, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Folder::open(&at.0).is_ok());
    }
}

/// Figures; `cargo test --release` with `--ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn how_long_listing_and_finding_take() {
    let clock = || clock::SystemClock::new();
    let best = |work: &mut dyn FnMut()| {
        (0..20)
            .map(|_| (std::time::Instant::now(), work()).0.elapsed())
            .min()
            .unwrap_or_default()
    };
    let measure = |runs: &Runs, what: &str, id: &str| {
        let list = best(&mut || {
            let page = runs.list(&Owner::Folder, None, 50).unwrap();
            assert_eq!(
                page.runs.iter().map(|run| run.record().chars).sum::<u64>(),
                50 * 4000
            );
        });
        let get = best(&mut || {
            assert_eq!(
                runs.find(id, &Owner::Folder).unwrap().read(0, 99_999).len(),
                4000
            )
        });
        println!("{what}: list {list:?}, get {get:?}, {:?}", runs.tally());
    };
    let memory = Runs::new(KEEP, None, None);
    (1..1000).for_each(|_| _ = finished(&memory, &Owner::Folder, &"x".repeat(4000)));
    let last = finished(&memory, &Owner::Folder, &"x".repeat(4000));
    measure(&memory, "1,000 in memory", &last.id().to_string());

    let at = Temporary::new();
    let first = Store::new(
        KEEP,
        Some(Folder::open(&at.0).unwrap()),
        None,
        Box::new(clock()),
    );
    let runs = Runs(Arc::new(first));
    let writer = runs.begin(start(&Owner::Folder));
    let append = best(&mut || (0..1000).for_each(|_| writer.append("a word ").unwrap())) / 1000;
    println!("append {append:?}");
    drop(writer);
    let begin = best(&mut || drop(runs.begin(start(&Owner::Folder))));
    let task = best(&mut || drop(runs.begin_task(start(&Owner::Folder), SECOND)));
    println!("begin and drop {begin:?}, as a task {task:?}");
    let writers: Vec<RunWriter> = (0..500)
        .map(|_| runs.begin(start(&Owner::Folder)))
        .collect();
    writers
        .iter()
        .for_each(|writer| writer.append("text").unwrap());
    println!(
        "interrupt 500: {:?}",
        (std::time::Instant::now(), runs.interrupt_all())
            .0
            .elapsed()
    );
    drop((writers, runs));
    fs::remove_dir_all(&at.0).unwrap();
    Folder::open(&at.0).unwrap();
    let mut record = working(&Hand::new());
    record = Record {
        state: RunState::Completed,
        bytes: 4000,
        chars: 4000,
        ..record
    };
    for n in 0..9_900 {
        let now = clock::milliseconds(SystemTime::now()) + n;
        record = Record {
            id: RunId::new(),
            created: now,
            ended: Some(now),
            ..record
        };
        at.leave(&record);
        fs::write(at.file(&record.id, "txt"), "x".repeat(4000)).unwrap();
    }
    let runs = Runs::new(KEEP, Some(Folder::open(&at.0).unwrap()), None);
    println!(
        "first sweep {:?}",
        (std::time::Instant::now(), runs.sweep()).0.elapsed()
    );
    measure(
        &runs,
        "9,900 in a folder that just changed",
        &record.id.to_string(),
    );
    std::thread::sleep(4 * SECOND);
    measure(&runs, "the same, at rest", &record.id.to_string());
    let reread = (0..20)
        .map(|_| {
            drop(runs.begin(start(&named("other"))));
            let begun = std::time::Instant::now();
            assert_eq!(runs.list(&Owner::Folder, None, 50).unwrap().runs.len(), 50);
            begun.elapsed()
        })
        .min();
    println!("list right after a change {reread:?}");
    let begin = best(&mut || drop(runs.begin(start(&Owner::Folder))));
    println!("begin and drop {begin:?}");
}
