//! Processes that are killed at random moments while they write runs.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;

use crate::account::Accounts;

use super::tests::{Bench, KEEP, completed, named};
use super::tests_folder::Temporary;
use super::*;

const FOLDER: &str = "FABRIC_MCP_TEST_RUNS";

/// The n-th piece of a run's text, which tells where it belongs. Pieces have many lengths, the longest over a block.
fn piece(n: usize) -> String {
    let filling = if n == 30 { 70_000 } else { n * 7 % 50 };
    format!("<{n} é漢🎼 {}>", "x".repeat(filling))
}

fn text(pieces: usize) -> String {
    (0..pieces).map(piece).collect()
}

/// Not a test: what is killed. Says which runs it has told as tasks, and which as completed.
#[test]
#[ignore = "the other tests' child process"]
fn child() {
    let folder = Folder::open(std::env::var_os(FOLDER).unwrap().as_ref()).unwrap();
    let bench = Bench::new(Accounts::alone(1 << 30), Some(folder));
    thread::scope(|scope| {
        for n in 0..4 {
            let bench = &bench;
            scope.spawn(move || {
                for i in 0.. {
                    let writer = bench.task(&named("me"), KEEP).unwrap();
                    let id = writer.run().id();
                    writeln!(std::io::stdout(), "\nbegun {id}").unwrap();
                    let pieces = (i * 5 + n * 3) % 37;
                    for n in 0..pieces {
                        writer.append(&piece(n)).unwrap();
                        writer.live.write(false);
                    }
                    writer.finish(completed());
                    writeln!(std::io::stdout(), "\ncompleted {id} {pieces}").unwrap();
                }
            });
        }
    });
}

/// Starts processes one after the other on one folder, and kills each a little later. Everything that was said must hold.
/// Returns how many runs completed and how many were cut.
fn kill(rounds: u64) -> (usize, usize) {
    let at = Temporary::new();
    let (mut completed, mut begun) = (HashMap::new(), Vec::new());
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "runs::kill::child",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(FOLDER, &at.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        // A moment that differs from round to round: after a line, and somewhere within what follows it.
        let mut said: Vec<String> = lines.by_ref().take(6 + round as usize % 40).collect();
        let spins = u32::from_str_radix(&crate::random::id()[..4], 16).unwrap();
        (0..spins * 20).for_each(|_| std::hint::spin_loop());
        child.kill().unwrap();
        said.extend(lines);
        child.wait().unwrap();
        for line in said {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["begun", id] if id.len() == 36 => begun.push(id.to_owned()),
                ["completed", id, pieces] => {
                    _ = completed.insert(id.to_owned(), pieces.parse::<usize>().unwrap())
                }
                _ => {}
            }
        }
    }
    check(&at, &completed, &begun)
}

fn check(at: &Temporary, completed: &HashMap<String, usize>, begun: &[String]) -> (usize, usize) {
    let (me, whole) = (named("me"), text(37));
    let folder = Folder::open(&at.0).unwrap();
    let runs = Runs::new(KEEP, Some(folder), &Accounts::alone(1 << 30));
    for (id, pieces) in completed {
        let run = runs.find(id, &me).unwrap();
        assert_eq!(run.record().state, RunState::Completed);
        assert!(run.read(0, usize::MAX) == text(*pieces), "{id}");
    }
    assert!(
        begun.iter().all(|id| runs.find(id, &me).is_some()),
        "told as a task and lost"
    );
    let listed = runs.list(&me, None, usize::MAX).unwrap().runs;
    let mut cut = 0;
    for run in &listed {
        let (record, text) = (run.record(), run.read(0, usize::MAX));
        assert!(whole.starts_with(&text), "{}", run.id());
        assert_eq!(
            (record.bytes, record.chars),
            (text.len() as u64, Some(text.chars().count() as u64))
        );
        // Completed, and killed before it could say so; or cut.
        assert!(matches!(
            record.state,
            RunState::Completed | RunState::Interrupted
        ));
        cut += usize::from(record.state == RunState::Interrupted);
    }
    assert!(listed.len() >= begun.len());
    for name in at.names() {
        let (id, ending) = name.split_once('.').unwrap();
        let known = runs.find(id, &me).is_some();
        // A kill between two steps leaves a part of a run that nobody was told of; it goes when it is old.
        assert!(
            known && ["json", "txt", "tmp"].contains(&ending) || !begun.contains(&id.to_owned()),
            "{name}"
        );
    }
    (listed.len() - cut, cut)
}

#[test]
fn a_killed_process_leaves_whole_runs_and_interrupted_ones() {
    let (completed, cut) = kill(4);
    assert!(completed > 0 && cut > 0, "{completed} {cut}");
}

#[test]
#[ignore = "takes minutes"]
fn killed_two_hundred_times() {
    let (completed, cut) = kill(200);
    println!("200 processes killed: {completed} runs completed, {cut} cut");
    assert!(completed > 200 && cut > 200);
}
