//! The state folder, shared by several tables as by several processes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::SystemTime;

use crate::access::Identity;
use crate::account::{Accounts, Resource};
use crate::time::timestamp;

use super::ledger::LOCKED;
use super::tests::{Bench, KEEP, LONG, accounts, by_hand, clock, complete, named, record};
use super::*;

/// A folder of its own, gone with the test.
pub(super) struct Temporary(pub(super) PathBuf);

impl Temporary {
    pub(super) fn new() -> Temporary {
        Temporary(std::env::temp_dir().join(format!("fabric-mcp-{}", RunId::new())))
    }

    /// Where a file of a run is.
    fn file(&self, id: RunId, ending: &str) -> PathBuf {
        self.0.join(format!("{id}.{ending}"))
    }

    /// The names of the files in it.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut names: Vec<String> = entries.map(|entry| name(entry.unwrap())).collect();
        names.sort();
        names
    }

    /// A record, as somebody left it.
    pub(super) fn leave(&self, record: &Record) {
        let json = serde_json::to_vec(record).unwrap();
        fs::write(self.file(record.id, "json"), json).unwrap();
    }

    /// As another process would open it.
    fn process(&self) -> Bench {
        self.bounded(Accounts::alone(1 << 30))
    }

    fn bounded(&self, accounts: Accounts) -> Bench {
        Bench::new(accounts, Some(Folder::open(&self.0).unwrap()))
    }

    /// What another process reads of a run.
    fn seen(&self, run: &Run) -> (RunState, String) {
        let run = find(&self.process(), run).unwrap();
        (run.record().state, run.read(0, 99))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn one_process() -> (Temporary, Bench) {
    let at = Temporary::new();
    let bench = at.process();
    (at, bench)
}

fn find(bench: &Bench, run: &Run) -> Option<Run> {
    bench.find(run, &Identity::Local)
}

/// A run whose process has died.
fn dead(at: &Temporary) -> Record {
    let mut record = record(&Identity::Local);
    (record.created, record.updated) = (1_000_000, 1_000_000);
    at.leave(&record);
    fs::write(at.file(record.id, "txt"), "").unwrap();
    record
}

/// Older than what somebody may still be writing.
fn age(path: &Path) {
    let old = SystemTime::now() - Duration::from_secs(3600);
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(old).unwrap();
}

/// What a second brings.
fn tick(writer: &RunWriter) {
    writer.live.write(None);
    writer.live.look();
}

#[test]
fn a_run_is_two_files_that_only_we_can_read() {
    let (at, bench) = one_process();
    let writer = bench.begin(&Identity::Local);
    let id = writer.run().id();
    let names = ["json", "txt"].map(|ending| format!("{id}.{ending}"));
    assert_eq!(at.names(), names);
    writer.append("aé").unwrap();
    assert_eq!(writer.run().read(0, 99), "aé", "told");
    assert_eq!(fs::read_to_string(at.file(id, "txt")).unwrap(), "aé");
    writer.append("漢").unwrap();
    let report = RunReport {
        warnings: vec!["long".to_owned()],
        ..RunReport::default()
    };
    writer.finish(RunState::Completed, report);
    assert_eq!(at.names(), names);
    assert_eq!(fs::read_to_string(at.file(id, "txt")).unwrap(), "aé漢");
    let found = find(&bench, &writer.run()).unwrap();
    assert_eq!(found.record(), writer.run().record());
    let bare = found.bare();
    let expected = RunReport::default();
    assert_eq!(bare.report, expected, "many handles may be open");
    let json = serde_json::to_vec(&found.record()).unwrap();
    assert_eq!(fs::read(at.file(id, "json")).unwrap(), json);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&at.0), 0o700);
        let found = ["json", "txt"].map(|part| mode(&at.file(id, part)));
        assert_eq!(found, [0o600; 2]);
    }
}

#[test]
fn a_record_is_no_longer_than_any_of_ours() {
    let (at, bench) = one_process();
    let run = bench.finished(&Identity::Local, "x");
    let json = fs::read(at.file(run.id(), "json")).unwrap();
    let spaces = |length| [json.clone(), vec![b' '; length - json.len()]].concat();
    fs::write(at.file(run.id(), "json"), spaces(6 << 20)).unwrap();
    assert!(find(&bench, &run).is_some());
    fs::write(at.file(run.id(), "json"), spaces((6 << 20) + 1)).unwrap();
    assert!(find(&bench, &run).is_none());
}

#[test]
fn nothing_is_kept_or_written_where_nothing_shall_be() {
    let (at, me) = (Temporary::new(), &Identity::Local);
    let (folder, mut bench) = (Folder::open(&at.0).unwrap(), at.process());
    bench.runs = Runs::new(Duration::ZERO, Some(folder), &bench.accounts, clock());
    assert!(!bench.runs.keeps());
    let writer = bench.begin(me);
    writer.append("one two").unwrap();
    let run = writer.run();
    assert!(bench.has(&run, me), "while it works it can be cancelled");
    complete(&writer);
    assert!(!bench.has(&run, me));
    assert_eq!((run.record().state, run.read(0, 9)), whole());
    assert_eq!(at.names(), Vec::<String>::new());
    let elsewhere = at.process().finished(me, "x");
    assert!(!bench.has(&elsewhere, me) && at.names().len() == 2);
}

#[test]
fn what_was_promised_is_on_disk_before_it_is_told() {
    let (at, bench) = one_process();
    let task = bench.task(&Identity::Local, LONG).unwrap();
    task.persist();
    let other = at.process();
    let ttl = |run: &Run| find(&other, run).unwrap().record().ttl;
    assert_eq!(ttl(&task.run()), Some(20_000));
    let run = bench.begin(&Identity::Local);
    run.promise(2 * LONG).unwrap();
    run.persist();
    assert_eq!(ttl(&run.run()), Some(40_000));
}

#[test]
fn processes_answer_for_each_other() {
    let (at, mine) = one_process();
    let other = at.process();
    let writer = mine.begin(&Identity::Local);
    let run = find(&other, &writer.run()).unwrap();
    let wait = |seen, limit| {
        let record = run.wait(seen, limit);
        (record.bytes, record.state)
    };
    assert_eq!(run.record().state, RunState::Working);
    assert_eq!(wait(0, Duration::ZERO), (0, RunState::Working));
    writer.append("aé漢").unwrap();
    tick(&writer);
    assert_eq!(wait(0, LONG), (6, RunState::Working));
    let found = (run.read(0, 99), run.read(1, 2));
    assert_eq!(found, ("aé漢".into(), "é".into()));
    assert_eq!(run.read_chars(1, 9), "é漢");
    let record = run.record();
    let found = (record.bytes, record.chars, run.chars());
    assert_eq!(found, (6, None, 3), "not read to look");
    assert_eq!(other.listed(&Identity::Local), [run.id()]);
    assert!(!other.has(&run, &named("x")) && other.listed(&named("x")).is_empty());
    writer.append("!").unwrap();
    complete(&writer);
    assert_eq!(wait(u64::MAX, LONG), (7, RunState::Completed));
    assert_eq!(run.record().state, RunState::Completed);
    assert_eq!(find(&mine, &run).unwrap().read(6, 9), "!");
    mine.finished(&Identity::Local, "");
    let all = other.runs.list(&Identity::Local).unwrap();
    let states = Vec::from_iter(all.iter().map(|run| run.known().state));
    assert_eq!(states, [RunState::Completed; 2]);
}

#[test]
fn another_process_cancels() {
    let (at, mine) = one_process();
    let (other, third) = (at.process(), at.process());
    let state = |bench: &Bench, run: &Run| find(bench, run).unwrap().record().state;
    let writer = mine.begin(&Identity::Local);
    let run = find(&other, &writer.run()).unwrap();
    assert!(run.cancel().unwrap() && !run.cancel().unwrap());
    let found = run.record().state;
    assert_eq!(found, RunState::Cancelled, "from the answer on");
    assert_eq!(state(&third, &run), RunState::Cancelled);
    assert!(!writer.live.is_stopped(), "not looked at yet");
    let found = state(&mine, &run);
    assert_eq!(found, RunState::Cancelled, "looked at when asked");
    assert!(writer.is_cancelled());
    thread::scope(|scope| {
        scope.spawn(|| complete(&writer));
        run.await_end();
        assert!(!run.record().is_elsewhere(), "its end is waited for");
    });
    assert_eq!(run.record().state, RunState::Cancelled);
    assert_eq!(at.names().len(), 2);
    assert!(!find(&other, &run).unwrap().cancel().unwrap());

    let late = mine.begin(&Identity::Local);
    let seen = find(&other, &late.run()).unwrap();
    let mark = at.file(seen.id(), "cancel");
    fs::create_dir(&mark).unwrap();
    assert!(seen.cancel().is_err(), "its process would not see it");
    fs::remove_dir(mark).unwrap();
    assert!(seen.cancel().unwrap());
    complete(&late);
    let found = state(&other, &late.run());
    assert_eq!(found, RunState::Cancelled, "before the end");
    assert_eq!(late.run().record().state, RunState::Cancelled);
    let own = mine.begin(&Identity::Local);
    assert!(own.run().cancel().unwrap());
    let found = state(&other, &own.run());
    assert_eq!(found, RunState::Cancelled, "before its worker knows");
}

#[test]
fn reading_does_not_put_off_a_cancellation_by_another_process() {
    let at = Temporary::new();
    let (clock, mine) = by_hand(Some(Folder::open(&at.0).unwrap()));
    let writer = mine.begin(&Identity::Local);
    let seen = find(&at.process(), &writer.run()).unwrap();
    assert!(seen.cancel().unwrap());
    writer.run().read(0, 99);
    assert!(!writer.is_cancelled(), "looked for once a second");
    clock.pass(1_000);
    assert!(writer.is_cancelled());
}

#[test]
fn a_dead_process_leaves_an_interrupted_run() {
    let (at, bench) = one_process();
    let cut = dead(&at);
    fs::write(at.file(cut.id, "txt"), &"aé漢".as_bytes()[..5]).unwrap();
    let run = bench.runs.find(&cut.id.to_string(), &Identity::Local);
    let run = run.unwrap();
    let record = run.record();
    assert_eq!((record.state, record.bytes), (RunState::Interrupted, 3));
    assert_eq!((record.chars, run.read(0, 99)), (Some(2), "aé".into()));
    assert!(record.ended.unwrap() > 1_000_000, "kept from now on");
    let found = fs::read(at.file(cut.id, "json")).unwrap();
    assert_eq!(found, serde_json::to_vec(&record).unwrap());
    let marked = dead(&at);
    fs::write(at.file(marked.id, "cancel"), "").unwrap();
    fs::remove_file(at.file(marked.id, "txt")).unwrap();
    let run = bench.runs.find(&marked.id.to_string(), &Identity::Local);
    let run = run.unwrap();
    assert_eq!(run.record().state, RunState::Cancelled);
    assert_eq!(at.names().len(), 3);
}

#[test]
fn a_folder_that_fails_again_at_once_is_not_said_to_work_again() {
    let at = Temporary::new();
    let folder = Folder::open(&at.0).unwrap();
    let fails = || {
        let full = ErrorKind::StorageFull.into();
        folder.warn(RunId::new(), "its end could not be written", &full);
        folder.recovered();
        assert!(folder.is_failing(), "nothing was written since");
        folder.write(&record(&Identity::Local), true).unwrap();
        folder.recovered();
        folder.is_failing()
    };
    assert_eq!([fails(), fails(), fails()], [false, true, true]);
}

#[test]
fn a_folder_is_failing_where_a_dead_run_cannot_be_shown_as_such() {
    let (at, bench) = one_process();
    let cut = dead(&at);
    let obstacle = at.file(cut.id, "tmp");
    fs::create_dir(&obstacle).unwrap();
    let run = bench.runs.find(&cut.id.to_string(), &Identity::Local);
    let run = run.unwrap();
    assert_eq!(run.record().state, RunState::Interrupted);
    assert!(bench.runs.is_failing());
    fs::remove_dir(obstacle).unwrap();
    bench.finished(&Identity::Local, "");
    assert!(!bench.runs.is_failing());
}

#[test]
fn many_who_look_at_a_dead_run_at_once_do_not_take_each_other_for_its_process() {
    let (at, bench) = one_process();
    for _ in 0..20 {
        let id = dead(&at).id.to_string();
        let start = std::sync::Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let run = bench.runs.find(&id, &Identity::Local).unwrap();
                    assert_eq!(run.record().state, RunState::Interrupted);
                });
            }
        });
    }
}

#[test]
fn a_finished_run_that_lost_its_text_says_so() {
    let (at, bench) = one_process();
    let run = bench.finished(&Identity::Local, "aé漢");
    let text = at.file(run.id(), "txt");
    fs::write(&text, &"aé漢".as_bytes()[..2]).unwrap();
    let found = find(&bench, &run).unwrap();
    let shown = (found.record().state, found.chars());
    assert_eq!(shown, (RunState::Interrupted, 1));
    assert_eq!(found.read(0, 9), "a");
    fs::write(&text, "aé漢 and more").unwrap();
    let found = find(&bench, &run).unwrap();
    let shown = (found.record().state, found.read(0, 99));
    assert_eq!(shown, (RunState::Completed, "aé漢".into()));
    fs::write(text, b"a\xFF\xFFbcd").unwrap();
    let found = find(&bench, &run).unwrap().read(0, 99);
    assert_eq!(found, "a\u{FFFD}\u{FFFD}bcd");
}

#[test]
fn what_is_damaged_is_passed_over_and_swept_when_old() {
    let (at, bench) = one_process();
    let good = bench.finished(&Identity::Local, "x");
    let newer = br#"{"version":2,"what":"ever"}"#;
    let other = serde_json::to_vec(&record(&Identity::Local)).unwrap();
    let mut strange = Vec::new();
    for (ending, content) in [
        ("json", &newer[..]),
        ("tmp", b"{\"ver"),
        ("json", b""),
        ("json", b"[1]"),
        ("json", &other),
        ("txt", b"text"),
        ("cancel", b""),
    ] {
        let id = RunId::new();
        fs::write(at.file(id, ending), content).unwrap();
        assert!(bench.runs.find(&id.to_string(), &Identity::Local).is_none());
        strange.push(at.file(id, ending));
    }
    let folder = Folder::open(&at.0).unwrap();
    let has_record = |id: RunId| folder.names().unwrap().get(&id).copied();
    let left = &strange[5].file_stem().unwrap().to_string_lossy();
    let found = [good.id(), RunId::parse(left).unwrap(), RunId::new()].map(has_record);
    assert_eq!(found, [Some(true), Some(false), None]);
    let newer = &strange[0].file_stem().unwrap().to_string_lossy();
    let cancel = |id| folder.cancel(id).map_err(|error| error.kind());
    let found = [RunId::new(), RunId::parse(newer).unwrap()].map(cancel);
    assert_eq!(found, [Ok(false), Err(ErrorKind::Unsupported)]);
    fs::write(at.0.join("notes.txt"), "mine").unwrap();
    fs::create_dir(at.file(RunId::new(), "json")).unwrap();
    assert_eq!(bench.listed(&Identity::Local), [good.id()]);
    let all = |paths: &[PathBuf]| paths.iter().all(|path| path.exists());
    assert!(all(&strange), "somebody may be writing it");
    strange.iter().for_each(|path| age(path));
    age(&at.0.join("notes.txt"));
    assert_eq!(bench.listed(&Identity::Local), [good.id()]);
    assert!(strange[0].exists() && at.0.join("notes.txt").exists());
    assert_eq!(at.names().len(), 5, "{:?}", at.names());
}

#[cfg(unix)]
#[test]
fn nothing_is_followed_and_nothing_hangs() {
    use std::os::unix::fs::symlink;
    use std::process::Command;
    let (at, bench) = one_process();
    let outside = Temporary::new();
    fs::create_dir(&outside.0).unwrap();
    let secret = outside.0.join("secret");
    fs::write(&secret, "secret").unwrap();
    let lookup = |id: RunId| bench.runs.find(&id.to_string(), &Identity::Local);

    let linked = dead(&at);
    let json = at.file(linked.id, "json");
    fs::rename(&json, outside.0.join("json")).unwrap();
    symlink(outside.0.join("json"), &json).unwrap();
    let piped = RunId::new();
    for ending in ["json", "txt", "cancel"] {
        let made = Command::new("mkfifo").arg(at.file(piped, ending)).status();
        assert!(made.unwrap().success());
    }
    assert!(lookup(linked.id).is_none() && lookup(piped).is_none());
    let text = bench.finished(&Identity::Local, "secret");
    fs::remove_file(at.file(text.id(), "txt")).unwrap();
    symlink(&secret, at.file(text.id(), "txt")).unwrap();
    let found = lookup(text.id()).unwrap();
    assert_eq!(found.record().state, RunState::Interrupted);
    let shown = (found.read(0, 99), found.read_chars(0, 99));
    assert_eq!(shown, (String::new(), String::new()));
    assert_eq!(bench.listed(&Identity::Local), [text.id()]);

    let cut = dead(&at);
    symlink(&secret, at.file(cut.id, "tmp")).unwrap();
    let found = lookup(cut.id).unwrap().record().state;
    assert_eq!(found, RunState::Interrupted);
    bench.tidy_after(KEEP * 2);
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
}

/// A run whose end could not be written to the folder, and the obstacle to that.
fn unwritten(at: &Temporary, bench: &Bench, owner: &Identity) -> (Run, PathBuf) {
    let writer = bench.begin(owner);
    let obstacle = at.file(writer.run().id(), "tmp");
    fs::create_dir(&obstacle).unwrap();
    writer.append("one ").unwrap();
    tick(&writer);
    writer.append("two").unwrap();
    complete(&writer);
    (writer.run(), obstacle)
}

fn whole() -> (RunState, String) {
    (RunState::Completed, "one two".into())
}

#[test]
fn an_end_that_could_not_be_written_is_written_later() {
    let (at, bench) = one_process();
    let (run, obstacle) = unwritten(&at, &bench, &Identity::Local);
    let own = find(&bench, &run).unwrap();
    assert_eq!((own.record().state, own.read(0, 99)), whole());
    let found = at.seen(&run).0;
    assert_eq!(found, RunState::Working, "its process will write it");
    let other = find(&at.process(), &run).unwrap();
    assert!(other.cancel().unwrap(), "for others it works");
    assert_eq!(bench.listed(&Identity::Local), [run.id()]);
    fs::remove_dir(obstacle).unwrap();
    bench.finished(&named("other"), "");
    assert_eq!(at.seen(&run), whole(), "it was shown as completed");
    assert_eq!((at.names().len(), bench.runs.kept()), (4, 2));
}

#[test]
fn the_end_of_the_process_writes_what_could_not_be_written() {
    let (at, bench) = one_process();
    let ends = (0..20).map(|_| unwritten(&at, &bench, &Identity::Local));
    let ends: Vec<(Run, PathBuf)> = ends.collect();
    let working = bench.begin(&Identity::Local);
    bench.runs.interrupt_all();
    assert_eq!(bench.runs.kept(), 21, "those are no obstacle to others");
    assert_eq!(at.seen(&working.run()).0, RunState::Interrupted);
    ends.iter()
        .for_each(|(_, path)| fs::remove_dir(path).unwrap());
    bench.runs.interrupt_all();
    assert!(ends.iter().all(|(run, _)| at.seen(run) == whole()));
}

#[test]
fn a_run_that_began_without_files_gets_them_later() {
    let (at, bench) = one_process();
    let away = at.0.with_extension("away");
    fs::rename(&at.0, &away).unwrap();
    let [late, later] = [(); 2].map(|()| bench.begin(&Identity::Local));
    late.append("one ").unwrap();
    tick(&late);
    fs::rename(&away, &at.0).unwrap();
    assert!(find(&at.process(), &late.run()).is_none());
    tick(&late);
    let working = (RunState::Working, "one ".to_owned());
    let found = at.seen(&late.run());
    assert_eq!(found, working, "there was room while it worked");
    later.append("one two").unwrap();
    complete(&later);
    assert_eq!(at.seen(&later.run()), whole(), "there was room at its end");
}

#[test]
fn that_a_model_was_asked_is_written_as_soon_as_there_is_room() {
    let (at, bench) = one_process();
    let writer = bench.begin(&Identity::Local);
    let [obstacle, record] = ["tmp", "json"].map(|part| at.file(writer.run().id(), part));
    fs::create_dir(&obstacle).unwrap();
    writer.ask("m", 3, &[]);
    let is_there = || fs::read_to_string(&record).unwrap().contains("asked");
    tick(&writer);
    assert!(!is_there());
    fs::remove_dir(obstacle).unwrap();
    tick(&writer);
    assert!(is_there(), "if the process is killed now, the step is paid");
}

#[test]
fn no_line_is_lost_if_the_process_is_killed_while_the_ledger_is_busy() {
    let (at, now) = (Temporary::new(), milliseconds_now());
    // For this process no month ends meanwhile.
    let (clock, bench) = by_hand(Some(Folder::open(&at.0).unwrap()));
    clock.set(now);
    let month = format!("usage-{}.{LOCKED}", &timestamp(now)[..7]);
    let ledger = File::create(at.0.join(&month)).unwrap();
    ledger.lock().unwrap();
    // What is left if the process is killed now: locks are not copied.
    let killed = || {
        let left = Temporary::new();
        fs::create_dir(&left.0).unwrap();
        let copy = |name: &String| fs::copy(at.0.join(name), left.0.join(name)).unwrap();
        at.names().iter().map(copy).for_each(drop);
        left
    };
    let outcomes = |at: &Temporary| {
        at.process().runs.sweep();
        let ledgers = at.names().into_iter().filter(|name| name.ends_with(".tsv"));
        let text =
            String::from_iter(ledgers.map(|name| fs::read_to_string(at.0.join(name)).unwrap()));
        let outcome = |line: &str| Vec::from_iter(line.split('\t').skip(5).take(2)).join(" ");
        Vec::from_iter(text.lines().map(outcome))
    };
    let writer = bench.begin(&Identity::Local);
    writer.ask("m", 3, &[]);
    writer.answered("ok", Some(Ok([5, 7])));
    writer.ask("m", 4, &["one".to_owned()]);
    writer.append("a text").unwrap();
    tick(&writer);
    let in_the_second_step = killed();
    writer.answered("ok", Some(Ok([6, 8])));
    complete(&writer);
    let at_the_end = killed();
    let damaged = at_the_end.file(writer.run().id(), "json");
    let text = fs::read_to_string(&damaged).unwrap();
    let line = format!("123456é\\t\\t\\t\\t1\\t1\\t\\t{}\\t3", writer.run().id());
    let text = text.replace("lines\":[", &format!("lines\":[\"é\",\"{line}\","));
    fs::write(&damaged, text).unwrap();
    assert_eq!(at.seen(&writer.run()).0, RunState::Completed);
    ledger.unlock().unwrap();
    assert_eq!(outcomes(&at).len(), 0, "left to the process that works");
    assert!(!bench.runs.is_failing());
    for _ in 0..2 {
        assert_eq!(outcomes(&in_the_second_step), ["7 ok", "~2 interrupted"]);
        assert_eq!(outcomes(&at_the_end), ["7 ok", "8 ok"]);
        assert_eq!(outcomes(&at), ["7 ok", "8 ok"]);
    }
    assert_eq!(at_the_end.seen(&writer.run()).0, RunState::Completed);
    let record = fs::read_to_string(at.file(writer.run().id(), "json")).unwrap();
    assert!(!record.contains("lines"), "{record}");
}

#[test]
fn a_working_run_outlives_the_removal_of_its_files() {
    let (at, bench) = one_process();
    let writers = [(); 2].map(|()| bench.begin(&Identity::Local));
    for writer in &writers {
        writer.append("one ").unwrap();
        tick(writer);
    }
    fs::remove_dir_all(&at.0).unwrap();
    writers[0].append("two").unwrap();
    complete(&writers[0]);
    fs::create_dir(&at.0).unwrap();
    writers[1].append("two").unwrap();
    complete(&writers[1]);
    let are_whole = writers.map(|writer| at.seen(&writer.run()) == whole());
    assert_eq!(are_whole, [true; 2]);
}

#[test]
fn what_could_not_be_written_is_charged_and_goes_with_its_files() {
    let at = Temporary::new();
    let (bench, me) = (at.bounded(accounts(1 << 20, 9, 1 << 20)), named("me"));
    let (run, obstacle) = unwritten(&at, &bench, &me);
    drop(run);
    fs::remove_dir(obstacle).unwrap();
    assert_eq!(at.names().len(), 2);
    let mut memory = bench.accounts.of("me").open(Resource::Memory);
    assert!(memory.grow(2 << 20).is_err());
    assert_eq!(at.names(), Vec::<String>::new());
    assert_eq!(bench.accounts.used(Resource::Kept), 0);
}

#[test]
fn room_in_memory_is_not_made_in_the_folder() {
    let at = Temporary::new();
    let (bench, me) = (at.bounded(accounts(1 << 20, 9, 1 << 20)), named("me"));
    let run = bench.finished(&me, "x");
    let mut memory = bench.accounts.of("me").open(Resource::Memory);
    assert!(memory.grow(2 << 20).is_err() && bench.has(&run, &me));
    assert_eq!(bench.accounts.used(Resource::Stored), 4096, "still charged");
}

#[test]
fn the_folder_is_charged_to_the_owners_of_what_is_in_it() {
    let at = Temporary::new();
    let (me, you) = (named("me"), named("you"));
    let first = at.process();
    let text = "x".repeat(3 << 12);
    let old = (0..10).map(|n| first.finished(if n < 2 { &you } else { &me }, &text));
    let old: Vec<Run> = old.collect();
    let task = first.task(&me, KEEP * 3).unwrap();
    complete(&task);
    let next = at.bounded(accounts(1 << 20, 8, 1 << 30));
    next.runs.sweep();
    let is_so = next.has(&old[0], &you) && next.has(&old[1], &you);
    assert!(is_so, "another's stay");
    assert!(next.has(&task.run(), &me), "promised, in a file too");
    let yours = next.accounts.of("you").held(Resource::Stored);
    let expected = 2 * (4 << 12);
    assert_eq!(yours, expected, "what is beside the text counts too");
    let found = next.accounts.of("me").held(Resource::Kept);
    assert_eq!(found, next.listed(&me).len());
    assert!((4..=6).contains(&next.listed(&me).len()));
    next.tidy_after(KEEP);
    assert_eq!(at.names().len(), 2, "swept by age");
    next.tidy_after(KEEP * 3);
    assert_eq!(at.names(), Vec::<String>::new());
    assert_eq!(next.accounts.used(Resource::Kept), 0);
}

#[test]
fn what_others_remove_is_gone() {
    let (at, mine) = one_process();
    let other = at.process();
    let run = mine.finished(&Identity::Local, "x");
    let held = find(&other, &run).unwrap();
    for ending in ["json", "txt"] {
        fs::remove_file(at.file(run.id(), ending)).unwrap();
    }
    assert!(find(&mine, &run).is_none() && find(&other, &run).is_none());
    let found = (mine.listed(&Identity::Local), mine.runs.kept());
    assert_eq!(found, (vec![], 0));
    let found = (held.read(0, 9), run.read(0, 9));
    assert_eq!(found, (String::new(), "x".into()));
    let writer = mine.begin(&Identity::Local);
    let working = find(&other, &writer.run()).unwrap();
    for ending in ["json", "txt"] {
        fs::remove_file(at.file(working.id(), ending)).unwrap();
    }
    let states = [&held, &working].map(|run| run.record().state);
    assert_eq!(states, [RunState::Completed, RunState::Interrupted]);
}

#[test]
fn folders_that_will_not_do_are_refused() {
    let at = Temporary::new();
    let why = |path: &Path| Folder::open(path).err().unwrap();
    fs::write(&at.0, "a file").unwrap();
    assert!(why(&at.0).starts_with("--state-dir: not a folder: "));
    fs::remove_file(&at.0).unwrap();
    let deep = at.0.join("deep/er");
    Folder::open(&deep).unwrap();
    let found = fs::read_dir(&deep).unwrap().count();
    assert_eq!(found, 0, "nothing is left in it");
    #[cfg(unix)]
    {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        set(&deep, 0o777);
        assert!(why(&deep).ends_with(&format!(
            "others can write to it: chmod 700 {}",
            deep.display()
        )));
        set(&deep, 0o775);
        Folder::open(&deep).unwrap();
        for parent in [0o777, 0o1777] {
            set(&at.0, parent);
            Folder::open(&deep).unwrap();
        }
        let link = at.0.join("link");
        symlink("deep/er", &link).unwrap();
        Folder::open(&link).unwrap();
        // The rest needs somebody else, to whom only root can give files.
        if chown(&deep, Some(65_533), None).is_ok() {
            assert!(why(&deep).contains("it belongs to somebody else"));
            chown(&deep, Some(0), None).unwrap();
            // In a sticky folder, many kernels do not follow somebody else's link.
            set(&at.0, 0o755);
            std::os::unix::fs::lchown(&link, Some(65_533), None).unwrap();
            assert!(why(&link).contains("the link"), "{}", why(&link));
            chown(&at.0, Some(65_533), None).unwrap();
            assert!(why(&deep).contains("which it is in, belongs to somebody else"));
        }
    }
}
