//! The ledger: one line for each request to a model, in `usage-YYYY-MM.tsv` (UTC) of the state folder.
//!
//! ```text
//!   time  caller  model  pattern  tokens read  tokens written  outcome  run  step
//! ```
//! There are tabs in between, and a `~` before tokens that are estimated. Any number of processes append, each under
//! the file's lock and in one write. If a killed process has left half a line, the next process ends that line, and it
//! does not count, because a line ends with its step. No file is ever removed here.
//!
//! A step has one line. Until it is written, the run's file says so, and its text stays locked. If the process was killed
//! before it wrote the line, the process that finds the run writes it; until then, the run is not settled. Of two lines
//! for one step, the first counts.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::record::{Record, RunId};
use crate::encoding::percent::percent_encode;
use crate::os::files::{create, open_plain};
use crate::sync::lock;
use crate::text::is_unprintable;
use crate::time::timestamp;

/// Most lines that wait until they can be written; those that come later are only in the log.
const MAX_WAITING: usize = 10_000;
/// How many of them keep the file of their run open.
const MAX_OPEN: usize = 64;
/// Longest line that is read, in bytes: no length in the folder is trusted.
const MAX_LINE: u64 = 64 << 10;
/// Longest wait for another process that is writing, and how often the lock is tried during that time. A process that
/// was stopped keeps the lock, and must not keep the runs of other processes from ending.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);
/// The ending of the file that is locked meanwhile. On Windows nobody can read a locked file, so it is another one there.
pub(super) const LOCKED: &str = if cfg!(windows) { "lock" } else { "tsv" };

/// A step of a run whose model was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// Its place in the run, from 1.
    pub(super) step: usize,
    /// The model that was asked for.
    pub(super) model: String,
    /// Tokens of its input, estimated.
    pub(super) input: u64,
}

/// Tokens read and written: `Ok` if Fabric counted them, `Err` with what is known if it did not.
pub(super) type Spent = Result<[u64; 2], [u64; 2]>;

/// The lines that are not in the files yet, and what is known of the files.
#[derive(Default)]
pub(super) struct LedgerState {
    /// Lines that are not written yet, the oldest first.
    waiting: VecDeque<String>,
    /// The month whose lines `used` has, up to this byte of its file.
    month: String,
    read: u64,
    /// Tokens by caller.
    used: HashMap<String, u64>,
}

/// What a line says.
pub(super) struct LedgerLine<'l> {
    pub(super) time: &'l str,
    pub(super) caller: &'l str,
    /// Percent-encoded.
    pub(super) model: &'l str,
    pub(super) tokens: [u64; 2],
    pub(super) is_estimated: bool,
    pub(super) step: (RunId, usize),
}

/// Estimates the tokens of this many characters, if nobody has counted them.
pub(crate) fn estimate(chars: u64) -> u64 {
    chars.div_ceil(4)
}

/// The line of a run's step that has ended `now`: with the tokens that were counted, or else with those that are known of,
/// but with no fewer than the estimate of its input.
pub(super) fn line(now: u64, run: &Record, asked: &Asked, outcome: &str, tokens: Spent) -> String {
    let mark = if tokens.is_ok() { "" } else { "~" };
    let [input, output] = tokens.unwrap_or_else(|[read, output]| [asked.input.max(read), output]);
    // The step may be what a file says.
    let pattern = run.patterns.get(asked.step.wrapping_sub(1));
    let pattern = pattern.map_or("", String::as_str);
    let [model, pattern] = [&asked.model, pattern].map(column);
    let (time, caller, id, step) = (timestamp(now), &run.owner, run.id, asked.step);
    format!(
        "{time}\t{caller}\t{model}\t{pattern}\t{mark}{input}\t{mark}{output}\t{outcome}\t{id}\t{step}\n"
    )
}

impl Folder {
    /// A line that the next [`Folder::flush`] writes.
    pub(super) fn add(&self, line: String) {
        lock(&self.ledger).waiting.push_back(line);
    }

    /// Is this line among the first that are still to be written? A run with such a line keeps its file open, so that others
    /// leave the line to this process.
    pub(super) fn is_waiting(&self, line: &String) -> bool {
        let state = lock(&self.ledger);
        state.waiting.iter().take(MAX_OPEN).any(|one| one == line)
    }

    /// Writes the line of a step whose process has died, unless the ledger of its month, or of one of `times`, has it.
    ///
    /// # Errors
    /// The line was not written, and should be tried again.
    pub(super) fn account_dead(&self, line: &str, times: &[String]) -> io::Result<()> {
        let mut is_there = false;
        let step = line.rmatch_indices('\t').nth(1).map_or(0, |(at, _)| at);
        let times = times.iter().map(String::as_str).chain([line]);
        for month in BTreeSet::from_iter(times.map(|time| self.month(&time[..7]))) {
            if let Ok(file) = open_plain(&month, OpenOptions::new().read(true)) {
                lines(file, &line[step..], |_| is_there = true);
            }
        }
        if is_there {
            return Ok(());
        }
        self.put(&mut lock(&self.is_held), line)?.sync_data()
    }

    /// Writes the lines that wait, up to the first that cannot be written. Says how many still wait; if too many do, the
    /// rest is logged.
    pub(super) fn flush(&self) -> usize {
        let (mut is_held, mut written) = (lock(&self.is_held), None);
        let first = || lock(&self.ledger).waiting.front().cloned();
        while let Some(Ok(file)) = first().map(|line| self.put(&mut is_held, &line)) {
            written = Some(file);
            lock(&self.ledger).waiting.pop_front();
        }
        drop(is_held);
        // Without the lock, so that no other thread waits for the disk. If this fails, only a power cut can lose the
        // lines.
        let _synced = written.map(|file| file.sync_data());
        self.log_waiting(MAX_WAITING)
    }

    /// Keeps the first so many of the lines that wait, and logs the others, which are nowhere else from then on. At the
    /// end of the process these are all, although whoever finds the last runs writes theirs. Returns how many still wait.
    pub(super) fn log_waiting(&self, first: usize) -> usize {
        let (_alone, mut state) = (lock(&self.is_held), lock(&self.ledger));
        let first = first.min(state.waiting.len());
        for line in state.waiting.drain(first..) {
            log::error!("not written to the ledger: {}", line.trim_end());
        }
        first
    }

    fn month(&self, month: &str) -> PathBuf {
        self.path.join(format!("usage-{month}.tsv"))
    }

    /// Writes a line, or logs why not. `is_held` as in [`Folder`].
    fn put(&self, is_held: &mut bool, line: &str) -> io::Result<File> {
        let written = self.append(line, PATIENCE * u32::from(!*is_held));
        let is_busy = |error: &io::Error| error.kind() == ErrorKind::WouldBlock;
        *is_held = written.as_ref().is_err_and(is_busy);
        self.has_written
            .fetch_or(written.is_ok(), Ordering::Relaxed);
        written.inspect_err(|error| {
            if let Some(line) = LedgerLine::parse(line) {
                let what = "its line of the ledger could not be written";
                self.warn(line.step.0, what, error);
            }
        })
    }

    fn append(&self, line: &str, patience: Duration) -> io::Result<File> {
        let path = self.month(&line[..7]);
        let open = |path| {
            // Fails mostly because it exists.
            let _new = create(path, &mut OpenOptions::new());
            open_plain(path, OpenOptions::new().read(true).append(true))
        };
        let (mut file, locked) = (open(&path)?, open(&path.with_extension(LOCKED))?);
        let begun = Instant::now();
        while let Err(error) = locked.try_lock().map_err(io::Error::from) {
            if error.kind() != ErrorKind::WouldBlock || begun.elapsed() >= patience {
                return Err(error);
            }
            thread::sleep(PAUSE);
        }
        let (length, mut last) = (file.metadata()?.len(), [b'\n']);
        if length > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        let end = if last == *b"\n" { "" } else { "\n" };
        let written = file.write_all([end, line].concat().as_bytes());
        // Half a line on a full disk would be in the way of other processes.
        let written = written.inspect_err(|_| drop(file.set_len(length)));
        // If this fails, closing the file does it. The line is written, and must not be written again.
        let _ = locked.unlock();
        written.map(|()| file)
    }

    /// How many tokens a caller has used in the month of `now`.
    pub(super) fn used(&self, now: u64, caller: &str) -> u64 {
        let (mut state, time) = (lock(&self.ledger), timestamp(now));
        let (state, month) = (&mut *state, &time[..7]);
        let file = open_plain(&self.month(month), OpenOptions::new().read(true));
        let data = file.as_ref().ok().and_then(|file| file.metadata().ok());
        // It gets shorter if somebody corrects it.
        let is_same = data.is_none_or(|data| data.len() >= state.read);
        if state.month != month || !is_same {
            (state.read, state.month) = (0, month.to_owned());
            state.used.clear();
        }
        if let Ok(mut file) = file
            && file.seek(SeekFrom::Start(state.read)).is_ok()
        {
            let (read, _) = lines(file, "", |line| {
                let used = state.used.entry(line.caller.to_owned()).or_default();
                *used = used.saturating_add(line.sum());
            });
            state.read += read;
        }
        let used = state.used.get(caller).copied().unwrap_or(0);
        let waiting = state.waiting.iter().map(String::as_str);
        let waiting = waiting.filter_map(LedgerLine::parse);
        let waiting = waiting.filter(|line| line.caller == caller && line.time.starts_with(month));
        waiting.fold(used, |used, line| used.saturating_add(line.sum()))
    }
}

impl LedgerLine<'_> {
    pub(super) fn parse(line: &str) -> Option<LedgerLine<'_>> {
        let columns = Vec::from_iter(line.trim_end().split('\t'));
        let [time, caller, model, _, input, output, _, run, step] = *columns else {
            return None;
        };
        let tokens = |text: &str| text.trim_start_matches('~').parse().ok();
        Some(LedgerLine {
            time,
            caller,
            model,
            tokens: [tokens(input)?, tokens(output)?],
            is_estimated: [input, output].iter().any(|text| text.starts_with('~')),
            step: (RunId::parse(run)?, step.parse().ok()?),
        })
    }

    pub(super) fn sum(&self) -> u64 {
        self.tokens[0].saturating_add(self.tokens[1])
    }
}

/// A name in which everything that would end a column or a line is percent-encoded. Names of callers are encoded
/// already.
fn column(name: &str) -> String {
    let encoded = |c: char| match is_unprintable(c) || c == '%' {
        true => percent_encode(c.encode_utf8(&mut [0; 4])),
        false => c.to_string(),
    };
    name.chars().map(encoded).collect()
}

/// Reads the whole lines of a file up to its end, and what those say that end in this way. Says how many bytes they are,
/// and how many of them cannot be read.
pub(super) fn lines(file: File, end: &str, mut each: impl FnMut(LedgerLine<'_>)) -> (u64, usize) {
    let (mut file, mut line, mut read, mut unread) = (BufReader::new(file), Vec::new(), 0, 0);
    let mut next = |line: &mut Vec<u8>| file.by_ref().take(MAX_LINE).read_until(b'\n', line);
    while next(&mut line).is_ok() && (line.ends_with(b"\n") || line.len() as u64 == MAX_LINE) {
        if line.ends_with(end.as_bytes()) {
            match str::from_utf8(&line).ok().and_then(LedgerLine::parse) {
                Some(line) => each(line),
                None => unread += 1,
            }
        }
        read += line.len() as u64;
        line.clear();
    }
    (read, unread)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::thread;

    use serde_json::json;

    use super::super::tests::{named, record};
    use super::super::tests_folder::Temporary;
    use super::super::usage::usage;
    use super::*;
    use crate::account::Accounts;
    use crate::runs::Runs;
    use crate::time::hand::{HandClock, TODAY};
    use crate::time::{milliseconds_now, next_month, parse};

    /// The 28th of July 2026, 12:00.
    const JULY: &str = "usage-2026-07.tsv";
    const DAY: u64 = 86_400_000;

    impl Folder {
        fn account(&self, line: String) {
            self.add(line);
            self.flush();
        }
    }

    fn open(at: &Temporary) -> Arc<Folder> {
        Folder::open(&at.0).unwrap()
    }

    fn asked(step: usize, model: &str) -> Asked {
        let (model, input) = (model.to_owned(), 3);
        Asked { step, model, input }
    }

    #[test]
    fn a_line_has_all_columns_and_no_other_breaks_it() {
        let at = Temporary::new();
        let folder = open(&at);
        let mut run = record(&named("token:alice"));
        run.patterns = vec!["summarize".into(), "a\tb%\n\u{202e}é c".into()];
        let add = |now, step, model, outcome, tokens| {
            folder.account(line(now, &run, &asked(step, model), outcome, tokens));
        };
        add(TODAY, 1, "m", "ok", Ok([5, 7]));
        add(TODAY + DAY, 2, "x\r", "cancelled", Err([0, 2]));
        add(TODAY + 4 * DAY, 2, "x", "ok", Ok([1, 1]));
        let id = run.id;
        let expected = format!(
            "2026-07-28T12:00:00.000Z\ttoken:alice\tm\tsummarize\t5\t7\tok\t{id}\t1\n\
             2026-07-29T12:00:00.000Z\ttoken:alice\tx%0D\ta%09b%25%0A%E2%80%AEé c\t~3\t~2\tcancelled\t{id}\t2\n"
        );
        assert_eq!(fs::read_to_string(at.0.join(JULY)).unwrap(), expected);
        assert!(at.0.join("usage-2026-08.tsv").exists());
        let found = [TODAY + 4 * DAY, TODAY, TODAY].map(|now| folder.used(now, "token:alice"));
        assert_eq!(found, [2, 17, 17]);
        fs::write(at.0.join(JULY), "").unwrap();
        assert_eq!(folder.used(TODAY, "token:alice"), 0);
    }

    #[test]
    fn torn_lines_and_foreign_ones_are_none_and_no_step_counts_twice() {
        let at = Temporary::new();
        let folder = open(&at);
        let run = record(&named("token:alice"));
        let add =
            |step, tokens| folder.account(line(TODAY, &run, &asked(step, "V/M"), "ok", tokens));
        add(1, Ok([5, 7]));
        let path = at.0.join(JULY);
        let line = fs::read_to_string(&path).unwrap();
        // Killed before it could write the rest; each column may be the last.
        for length in 1..line.len() - 1 {
            let torn = line.replace(&run.id.to_string(), &RunId::new().to_string());
            fs::write(&path, [&line, &torn[..length]].concat()).unwrap();
            add(2, Err([0, 1]));
            let text = fs::read_to_string(&path).unwrap();
            let found = text.lines().filter_map(LedgerLine::parse).count();
            assert_eq!(found, 2, "{text}");
        }
        let half = line.replace("\t7\t", "\t~7\t");
        fs::write(&path, [&*half, "\n\t\nx\n\u{fffd}\n", &line].concat()).unwrap();
        // Whoever finds it interrupted.
        add(1, Err([0, 9]));
        add(2, Err([0, 1]));
        let rows = |from, in_it, priced: &str| {
            let prices = [(priced.to_owned(), [1e6, 0.5])].into();
            usage(&at.0, (from, in_it), Some(&prices)).unwrap()
        };
        let july = rows("2026-07", true, "m");
        let row = |caller, model| {
            json!({"caller": caller, "model": model, "runs": 1, "steps": 2, "input_tokens": 8,
            "output_tokens": 8, "estimated_tokens": 16, "cost": 8.000004})
        };
        assert_eq!(july, [row("token:alice", "V/M"), row("all", "")]);
        for priced in ["v/m", "default"] {
            assert_eq!(rows("2026-07-28", false, priced), july);
        }
        for (from, in_it) in [("2026-07-29", false), ("2026-08", true), ("2026-06", true)] {
            assert_eq!(rows(from, in_it, "m").len(), 1, "only the sum");
        }
    }

    #[test]
    fn a_dead_run_is_not_settled_before_its_line_is_written_once() {
        let (at, alice) = (Temporary::new(), "token:alice");
        let (folder, now) = (open(&at), milliseconds_now());
        let mut run = record(&named(alice));
        (run.asked, run.updated) = (Some(asked(1, "m")), now);
        at.leave(&run);
        let rows = || usage(&at.0, ("2000-01", false), None).unwrap();
        let steps = || rows().pop().unwrap()["steps"].take();
        let file = folder.month(&timestamp(now)[..7]);
        let held = File::create(file.with_extension(LOCKED)).unwrap();
        held.lock().unwrap();
        assert_eq!(steps(), 0);
        let accounts = Accounts::alone(1 << 30);
        let clock = Arc::new(HandClock::default());
        let runs = Runs::new(PATIENCE, Some(folder.clone()), &accounts, clock);
        let fails = || {
            let ended = folder.load(run.id).unwrap().ended;
            [runs.is_failing(), ended.is_none()]
        };
        assert_eq!(fails(), [true; 2]);
        held.unlock().unwrap();
        assert_eq!(fails(), [false; 2], "what could not be written is");
        assert_eq!(steps(), 1);
        // Killed between its line and its record.
        at.leave(&run);
        assert_eq!((steps(), folder.used(now, alice)), (json!(1), 3));
        // The same, but found only after the end of the month; or long after a step that ended in the month after its
        // last text; or after the clock was set back to the month before.
        let [after, ahead] = [TODAY, now].map(|at| parse(&next_month(at)).unwrap());
        for (sum, updated, ended) in [(2, TODAY, TODAY), (3, TODAY, after), (4, now, ahead)] {
            let mut run = record(&named("token:bob"));
            (run.asked, run.updated) = (Some(asked(1, "m")), updated);
            folder.account(line(ended, &run, &asked(1, "m"), "ok", Ok([5, 7])));
            at.leave(&run);
            assert_eq!((steps(), folder.used(now, "token:bob")), (json!(sum), 0));
        }
        // Its line is of the month of its last text.
        (run.asked, run.updated) = (Some(asked(2, "m")), TODAY);
        at.leave(&run);
        assert_eq!((steps(), folder.used(TODAY, alice)), (json!(5), 3));
    }

    #[test]
    fn a_process_that_keeps_the_lock_holds_nobody_up() {
        let at = Temporary::new();
        let folder = open(&at);
        let add = |tokens| {
            let run = record(&named("token:alice"));
            folder.account(line(TODAY, &run, &asked(0, "m"), "ok", Ok(tokens)));
        };
        add([1, 1]);
        let held = File::open(at.0.join(JULY).with_extension(LOCKED)).unwrap();
        held.lock().unwrap();
        let begun = Instant::now();
        add([1, 1]);
        (0..100).for_each(|_| add([u64::MAX, 1]));
        let took = begun.elapsed();
        assert!((PATIENCE..50 * PATIENCE).contains(&took), "once: {took:?}");
        let (accounts, clock) = (Accounts::alone(1), Arc::new(HandClock::default()));
        let runs = Runs::new(Duration::ZERO, Some(folder.clone()), &accounts, clock);
        assert_eq!((folder.flush(), runs.unwritten()), (101, 101));
        assert_eq!(folder.used(TODAY, "token:alice"), u64::MAX);
        held.unlock().unwrap();
        // Even if no run is kept, lines that wait are written, and that they are is told.
        add([1, 1]);
        assert!(!runs.is_failing());
        // Somebody's bytes without an end.
        let mut file = File::options().append(true).open(at.0.join(JULY)).unwrap();
        file.write_all(&[b'x'; MAX_LINE as usize]).unwrap();
        add([1, 1]);
        assert_eq!(folder.used(TODAY, "token:alice"), u64::MAX);
        let rows = usage(&at.0, ("2026-07", true), None).unwrap();
        assert_eq!(rows[1]["steps"], 104);
        // What still waits at the end is logged, once.
        fs::remove_file(at.0.join(JULY)).unwrap();
        fs::create_dir(at.0.join(JULY)).unwrap();
        (0..=MAX_WAITING).for_each(|_| add([1, 1]));
        assert_eq!(folder.flush(), MAX_WAITING);
        runs.interrupt_all();
        assert_eq!(folder.flush(), 0);
    }

    #[test]
    fn several_write_at_once_and_what_cannot_be_written_waits() {
        let at = Temporary::new();
        let folders = [open(&at), open(&at)];
        // Nothing can be written to a folder.
        fs::create_dir(at.0.join(JULY)).unwrap();
        let add = |run: &Record| line(TODAY, run, &asked(1, "m"), "ok", Ok([1, 1]));
        let unwritten = add(&record(&named("token:alice")));
        folders[0].account(unwritten.clone());
        let found = (folders[0].flush(), folders[0].is_waiting(&unwritten));
        assert_eq!(found, (1, true));
        let used = |day, caller| {
            let now = TODAY + day * DAY;
            folders.each_ref().map(|folder| folder.used(now, caller))
        };
        assert_eq!(used(0, "token:alice"), [2, 0]);
        assert_eq!((used(4, "token:alice"), used(0, "bob")), ([0; 2], [0; 2]));
        fs::remove_dir(at.0.join(JULY)).unwrap();
        thread::scope(|scope| {
            for folder in &folders {
                scope.spawn(|| {
                    for _ in 0..50 {
                        folder.account(add(&record(&named("token:alice"))));
                    }
                });
            }
        });
        assert_eq!(folders[0].flush(), 0);
        assert_eq!(used(0, "token:alice"), [202; 2]);
    }
}
