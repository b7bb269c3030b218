//! A state folder that cannot be written for a while, as when the disk is full.

use std::fs;
use std::path::PathBuf;

use super::live::StoredEnd;
use super::tests::{Hand, KEEP, finished, named, start};
use super::tests_folder::{Temporary, find, one_process, process};
use super::*;
use crate::time::Clock;

const MINUTE: Duration = Duration::from_secs(60);

fn ended(writer: &RunWriter) -> Run {
    writer.append("one ").unwrap();
    writer.is_cancelled();
    writer.append("two").unwrap();
    writer.finish(End::completed());
    writer.run()
}

/// A run that has ended and could not say so in the folder; and what is in the way of that.
fn unwritten(at: &Temporary, hand: &Hand, runs: &Runs, owner: &Owner) -> (Run, PathBuf) {
    let writer = runs.begin(start(owner));
    hand.pass(MINUTE);
    let obstacle = at.file(&writer.run().id(), "json.tmp");
    fs::create_dir(&obstacle).unwrap();
    (ended(&writer), obstacle)
}

/// What another process reads of a run.
fn seen(at: &Temporary, hand: &Hand, run: &Run) -> (RunState, String) {
    let run = find(&process(at, hand), run).unwrap();
    (run.record().state, run.read(0, 99))
}

fn whole() -> (RunState, String) {
    (RunState::Completed, "one two".into())
}

fn list(runs: &Runs) -> usize {
    runs.list(&Owner::Folder, None, 9).unwrap().runs.len()
}

#[test]
fn an_end_that_could_not_be_written_is_written_later() {
    let (at, hand, runs) = one_process();
    let (run, obstacle) = unwritten(&at, &hand, &runs, &Owner::Folder);
    let own = find(&runs, &run).unwrap();
    assert_eq!((own.record().state, own.read(0, 99)), whole());
    assert_eq!(
        seen(&at, &hand, &run).0,
        RunState::Working,
        "its owner will write it"
    );
    hand.pass(MINUTE);
    assert_eq!((list(&runs), list(&process(&at, &hand))), (1, 1));
    assert_eq!(seen(&at, &hand, &run).0, RunState::Working);
    fs::remove_dir(obstacle).unwrap();
    hand.pass(MINUTE);
    finished(&runs, &named("other"), "");
    assert_eq!(seen(&at, &hand, &run), whole());
    let files = ["json", "txt"].map(|ending| format!("{}.{ending}", run.id()));
    assert!(
        files.iter().all(|name| at.names().contains(name)) && at.names().len() == 3,
        "{:?}",
        at.names()
    );
    let own = find(&runs, &run).unwrap();
    assert_eq!((own.record().state, own.read(0, 99)), whole());
    assert_eq!(
        (list(&runs), runs.tally().working, runs.tally().kept),
        (1, 0, 2)
    );
}

#[test]
fn an_end_that_was_shown_is_no_longer_cancelled() {
    let (at, hand, runs) = one_process();
    let (run, obstacle) = unwritten(&at, &hand, &runs, &Owner::Folder);
    assert!(
        find(&process(&at, &hand), &run).unwrap().cancel().unwrap(),
        "for others it works"
    );
    fs::remove_dir(obstacle).unwrap();
    hand.pass(MINUTE);
    assert_eq!(list(&runs), 1);
    assert_eq!(seen(&at, &hand, &run), whole());
    assert_eq!(
        (find(&runs, &run).unwrap().record().state, at.names().len()),
        (RunState::Completed, 2)
    );
}

#[test]
fn the_next_end_that_is_written_brings_those_before_it() {
    let (at, hand, runs) = one_process();
    let (run, obstacle) = unwritten(&at, &hand, &runs, &Owner::Folder);
    assert!(list(&runs) == 1, "the folder is read");
    fs::remove_dir(obstacle).unwrap();
    hand.pass(MINUTE - Duration::from_secs(1));
    finished(&runs, &Owner::Folder, "early");
    assert_eq!(seen(&at, &hand, &run).0, RunState::Working);
    hand.pass(Duration::from_secs(1));
    finished(&runs, &Owner::Folder, "in time");
    assert_eq!(seen(&at, &hand, &run), whole());
}

#[test]
fn the_smallest_are_written_first() {
    let (at, hand, runs) = one_process();
    let _obstacles: Vec<PathBuf> = [30_000, 2, 700, 9]
        .map(|size: usize| {
            let writer = runs.begin(start(&Owner::Folder));
            let obstacle = at.file(&writer.run().id(), "json.tmp");
            fs::create_dir(&obstacle).unwrap();
            writer.append(&"x".repeat(size)).unwrap();
            writer.finish(End::completed());
            obstacle
        })
        .into();
    hand.pass(MINUTE);
    let sizes: Vec<u64> = runs
        .0
        .unstored()
        .iter()
        .map(|live| live.record().bytes)
        .collect();
    assert_eq!(sizes, [2, 9, 700, 30_000]);
}

#[test]
fn ends_that_cannot_be_written_are_no_end_of_others() {
    let (at, hand, runs) = one_process();
    let ends: Vec<(Run, PathBuf)> = (0..20)
        .map(|_| unwritten(&at, &hand, &runs, &Owner::Folder))
        .collect();
    runs.interrupt_all();
    assert_eq!((runs.tally().working, runs.tally().kept), (0, 20));
    ends.iter()
        .for_each(|(_, obstacle)| fs::remove_dir(obstacle).unwrap());
    assert_eq!(runs.interrupt_all(), 0);
    for (run, _) in &ends {
        assert_eq!(seen(&at, &hand, run), whole());
    }
}

#[test]
fn the_end_of_the_process_writes_what_could_not_be_written() {
    let (at, hand, runs) = one_process();
    let (run, obstacle) = unwritten(&at, &hand, &runs, &Owner::Folder);
    runs.interrupt_all();
    fs::remove_dir(obstacle).unwrap();
    assert_eq!(runs.interrupt_all(), 0);
    assert_eq!(seen(&at, &hand, &run), whole());
    assert_eq!(at.names().len(), 2);
}

#[test]
fn a_run_that_began_without_files_gets_them_later() {
    let (at, hand, runs) = one_process();
    let away = at.0.with_extension("away");
    let begin = |owner| {
        fs::rename(&at.0, &away).unwrap();
        let writer = runs.begin(start(&owner));
        (writer.run(), writer)
    };
    let back = || fs::rename(&away, &at.0).unwrap();

    let (run, writer) = begin(Owner::Folder);
    back();
    ended(&writer);
    assert_eq!(seen(&at, &hand, &run), whole(), "there was room at its end");

    let (run, writer) = begin(Owner::Folder);
    back();
    writer.append("one ").unwrap();
    assert!(find(&process(&at, &hand), &run).is_none());
    hand.pass(MINUTE);
    list(&runs);
    hand.pass(MINUTE);
    assert!(!writer.is_cancelled());
    assert_eq!(
        seen(&at, &hand, &run),
        (RunState::Working, "one ".into()),
        "there was room while it worked"
    );
    assert!(find(&process(&at, &hand), &run).unwrap().cancel().unwrap());
    hand.pass(MINUTE);
    assert!(writer.is_cancelled());
    writer.finish(End::completed());
    assert_eq!(seen(&at, &hand, &run), (RunState::Cancelled, "one ".into()));
    for owner in [Owner::Folder, Owner::Process] {
        let (run, writer) = begin(owner.clone());
        ended(&writer);
        back();
        hand.pass(MINUTE);
        assert!(list(&runs) > 0);
        runs.interrupt_all();
        match owner {
            Owner::Process => assert_eq!(at.names().len(), 6, "it is written nowhere"),
            _ => assert_eq!(seen(&at, &hand, &run), whole()),
        }
    }
}

#[test]
fn making_room_in_memory_leaves_what_is_being_written() {
    let (at, hand, runs) = one_process();
    let (run, obstacle) = unwritten(&at, &hand, &runs, &Owner::Folder);
    fs::remove_dir(obstacle).unwrap();
    let closed = runs.0.unstored();
    let record = closed[0].close_again().unwrap();
    runs.shrink(usize::MAX);
    closed[0].closed(record, StoredEnd::NotYet, hand.steady(), KEEP);
    assert!(runs.0.write_again(&closed[0]));
    assert_eq!(seen(&at, &hand, &run), whole());
}

#[test]
fn what_could_not_be_written_goes_with_its_files() {
    let (at, hand, runs) = one_process();
    let (run, obstacle) = unwritten(&at, &hand, &runs, &Owner::Folder);
    assert_eq!(at.names().len(), 4);
    runs.shrink(usize::MAX);
    assert!(find(&runs, &run).is_none());
    fs::remove_dir(obstacle).unwrap();
    assert_eq!(at.names(), Vec::<String>::new());

    let (run, _obstacle) = unwritten(&at, &hand, &runs, &Owner::Folder);
    hand.pass(KEEP / 2);
    assert_eq!(list(&runs), 1);
    hand.pass(KEEP / 2);
    assert!(
        find(&runs, &run).is_none(),
        "another attempt keeps it no longer"
    );
    runs.sweep();
    assert_eq!(at.names(), [format!("{}.json.tmp", run.id())]);
}

#[test]
fn a_cancellation_that_cannot_be_written_is_an_error() {
    let (at, hand, runs) = one_process();
    let writer = runs.begin(start(&Owner::Folder));
    let run = find(&process(&at, &hand), &writer.run()).unwrap();
    let obstacle = at.file(&run.id(), "cancel");
    fs::create_dir(&obstacle).unwrap();
    assert!(run.cancel().is_err());
    assert_eq!(run.record().state, RunState::Working);
    hand.pass(MINUTE);
    assert!(!writer.is_cancelled());
    fs::remove_dir(obstacle).unwrap();
    assert!(run.cancel().unwrap());
    hand.pass(MINUTE);
    assert!(writer.is_cancelled());
    writer.finish(End::cancelled());
    assert!(!run.cancel().unwrap());
}
