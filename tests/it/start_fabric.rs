//! `--start-fabric`: a Fabric that is started when it is needed, shared, and never left behind.
//!
//! The Fabric is a shell script, which becomes this test binary with [`stand_in`].
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::folder::TempFolder;
use crate::support::http::HttpServer;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;
use crate::support::{Caller, DEADLINE, Era, poll};

/// Not a test: the Fabric of the tests below, in a process of its own.
#[test]
#[ignore = "the other tests' child process"]
fn stand_in() {
    let line = std::env::var("STAND_IN").unwrap();
    let [serve, _, address, _, key] = line.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{line}")
    };
    assert_eq!(serve, "--serve");
    let (_, port) = address.split_once(':').unwrap();
    let fabric = FakeFabric::start_at(port.parse().unwrap()).unwrap();
    fabric.require_key(key);
    fabric.on("GET /contexts/names", Reply::silence());
    let said = "Requested Model = Default Model = Default Vendor = . please run 'fabric --setup'";
    fabric.on_run(Reply::sse().error(said));
    fabric.once_run(Reply::gated(&["begun", ", ended"]));
    let home = std::env::var("HOME").unwrap();
    for _ in (0..4).filter(|_| fs::metadata(format!("{home}/up")).is_err()) {
        let none = json!({"models": null, "vendors": {}});
        fabric.once("GET /models/names", Reply::json(none));
    }
    let end = || fs::metadata(format!("{home}/end")).ok();
    poll(Duration::from_secs(3600), end);
    fabric.release_all();
    std::thread::park();
}

/// A folder with a program `bin/NAME` that reads its input to the end, says `version`, and does `serve` to serve; its `log`
/// has a line for each start: the process, its helper, the variables of ours that it got, and its PATH.
fn machine(name: &str, program: &str, version: &str, serve: &str) -> TempFolder {
    let folder = TempFolder::new(name);
    let (own, log) = (std::env::current_exe().unwrap(), folder.path("log"));
    let stand_in = format!(
        "exec {} --exact start_fabric::stand_in --ignored",
        own.display()
    );
    let serve = serve.replace("SERVE", &stand_in);
    let script = format!(
        "#!/bin/sh\ncat\nif [ \"$1\" = --version ]; then {version}; exit; fi\n\
         echo $$ $PPID $(env | grep -ci '^FABRIC_[MAB].*=') $PATH >> {}\nexport STAND_IN=\"$*\"\n{serve}\n",
        log.display(),
    );
    let file = folder.write(&format!("bin/{program}"), script);
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    folder.write(".config/fabric/.env", "");
    folder
}

fn usual(name: &str) -> TempFolder {
    machine(name, "fabric", "echo v1.4.470", "SERVE")
}

/// With secrets around it.
fn program(folder: &TempFolder) -> Program {
    let bin = folder.path("bin").display().to_string();
    let path = format!("{bin}:/sbin:{bin}:/usr/bin:.:/bin");
    let program = Program::new(["--start-fabric"]).env("HOME", folder.text());
    let program = program.env("FABRIC_BASE_URL", "no URL");
    let program = program.env("FABRIC_API_KEY", "canary").env("PATH", &path);
    let program = program.env("Fabric_Mcp_Auth_Token", "canary");
    program.env("FABRIC_MCP_AUTH_TOKEN", "a-token-of-24-characters")
}

/// The processes that were started.
fn started(folder: &TempFolder) -> Vec<u32> {
    processes(folder, 0)
}

/// These, or with 1 the helpers.
fn processes(folder: &TempFolder, column: usize) -> Vec<u32> {
    let log = fs::read_to_string(folder.path("log")).unwrap_or_default();
    let pids = log.lines().map(|line| line.split(' ').nth(column).unwrap());
    pids.map(|pid| pid.parse().unwrap()).collect()
}

fn kill(signal: &str, pid: u32) -> bool {
    let kill = format!("kill -{signal} {pid}");
    let killed = Command::new("sh").args(["-c", &kill]).output();
    killed.unwrap().status.success()
}

#[track_caller]
fn expect_gone(pid: u32) {
    // After a minute the stand-in ends by itself: it cannot write that it has run for so long.
    let soon = Duration::from_secs(30);
    let gone = poll(soon, || (!kill("0", pid)).then_some(()));
    assert!(gone.is_some(), "{pid} was left behind");
}

#[test]
fn one_is_started_for_all_calls_without_our_secrets_and_never_left_behind() {
    for end in ["stdin", "KILL", "TERM", "all"] {
        let folder = usual(&format!("start-{end}"));
        let mut client = Stdio::speaking(Era::MODERN, program(&folder));
        client.result("tools/list", json!({}));
        let wrong = json!({"pattern_name": "sumarize", "strategy_name": "x", "top_p": 9});
        client.failure("fabric_run_pattern", wrong, "invalid-request");
        assert_eq!(started(&folder), [0; 0], "nothing needed it");
        let ids = [0; 5].map(|_| client.begin_call("fabric_list_strategies", json!({}), None));
        for id in ids {
            assert_eq!(client.answer(&id)["result"]["isError"], false);
        }
        let log = fs::read_to_string(folder.path("log")).unwrap();
        let go = format!("/usr/bin:/bin:{}", folder.path("go/bin").display());
        assert!(log.contains(" 0 ") && log.contains(&go), "{log}");
        assert_eq!(started(&folder).len(), 1, "{log}");
        let (pid, helper) = (started(&folder)[0], processes(&folder, 1)[0]);
        match end {
            "stdin" => client.close_stdin(),
            // At the same time: each would see to it when the other is gone.
            "all" => {
                client.process().signal("STOP");
                // Its shell outlives what ends all programs of a session.
                let shell = ["-TERM", "-P", &helper.to_string(), "-x", "sh"];
                let _ = Command::new("pkill").args(shell).status();
                kill("KILL", helper);
                client.process().signal("KILL");
            }
            signal => client.process().signal(signal),
        }
        client.wait_exit(DEADLINE);
        expect_gone(pid);
    }
}

#[test]
fn one_with_old_settings_or_no_models_or_that_hangs_is_replaced_but_ends_its_run() {
    let folder = usual("start-retires");
    let program = program(&folder).env("FABRIC_MCP_REQUEST_TIMEOUT", "3");
    let mut client = Stdio::speaking(Era::MODERN, program);
    let run = json!({"pattern_name": "summarize", "input_text": "A text.", "stream": true});
    let id = client.begin_call("fabric_run_pattern", run.clone(), Some(json!("p")));
    assert_eq!(client.next_progress_text(), "begun");
    let said = client.failure("fabric_run_pattern", run, "fabric-api-error");
    let words = ". Fabric has no default model. Run `fabric --setup`; or start ";
    assert!(said.contains(words), "{said}");
    client.success("fabric_list_models", json!({}));
    client.success("fabric_list_strategies", json!({}));
    let (all, helpers) = (started(&folder), processes(&folder, 1));
    assert_eq!(all.len(), 2, "a vendor may answer now");
    // The end of a helper that stands still is waited for, but not for ever.
    kill("STOP", helpers[1]);
    folder.write(".config/fabric/.env", "");
    client.success("fabric_list_strategies", json!({}));
    kill("CONT", helpers[1]);
    expect_gone(all[1]);
    let all = started(&folder);
    let late = |client: &mut Stdio, tool| client.failure(tool, json!({}), "fabric-api-unavailable");
    late(&mut client, "fabric_list_contexts");
    assert_eq!(started(&folder), all, "it answers others");
    kill("STOP", all[2]);
    folder.write("up", "");
    late(&mut client, "fabric_list_strategies");
    let process = client.process();
    process.wait_stderr("Fabric no longer answers, so it is ended; the next call starts it again.");
    client.success("fabric_list_strategies", json!({}));
    expect_gone(all[2]);
    folder.write("end", "");
    let answer = client.answer(&id);
    assert_eq!(answer["result"]["content"][0]["text"], "begun, ended");
    expect_gone(all[0]);
    // Its vendors may have answered since they were asked.
    let late = json!({"pattern_name": "ai", "input_text": "A text.", "model_name": "late"});
    client.success("fabric_run_pattern", late.clone());
    let said = client.failure("fabric_run_pattern", late, "invalid-request");
    assert!(said.contains("no model named \"late\""), "{said}");
    expect_gone(started(&folder)[3]);
}

#[test]
fn one_that_hangs_at_its_start_is_not_left_behind() {
    let version = "if [ -e $0.y ]; then echo $$ >> $HOME/log; exec sleep 1000; fi; echo v1.4.470";
    let serve = "[ -e $0.x ] && touch $0.y || echo fabric --setup; touch $0.x; exec sleep 1000";
    let folder = machine("start-late", "fabric", version, serve);
    let own = program(&folder).after("cp \"$0\" $HOME/own; exec $HOME/own \"$@\"");
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, own);
    #[cfg(target_os = "linux")] // It may be replaced while it runs.
    fs::remove_file(folder.path("own")).unwrap();
    let call = |client: &mut Stdio| client.begin_call("fabric_list_strategies", json!({}), None);
    let id = call(&mut client);
    // It is in the log before it does anything.
    let is_up = || fs::metadata(folder.path("bin/fabric.x")).ok();
    let first = poll(DEADLINE, || is_up().map(|_| started(&folder)[0])).unwrap();
    client.cancel(&id);
    expect_gone(first);
    let kind = "fabric-api-unavailable";
    let said = client.failure("fabric_list_strategies", json!({}), kind);
    assert!(said.contains("it did not answer within 10 s"), "{said}");
    let process = client.process();
    process.wait_stderr("ERROR [fabric_mcp::fabric::process] No Fabric was started: fabric-api");
    let log = process.stderr();
    assert!(!log.contains("No Fabric was started: cancelled"), "{log}");
    expect_gone(started(&folder)[1]);
    // Soon after a failure nothing is started, but then again.
    let third = poll(DEADLINE, || {
        call(&mut client);
        poll(Duration::from_secs(1), || started(&folder).get(2).copied())
    });
    client.process().signal("KILL");
    expect_gone(third.expect("its version is asked for"));
}

#[test]
fn one_that_dies_is_replaced_but_not_for_ever() {
    let folder = usual("start-dies");
    let mut client = Stdio::speaking(Era::MODERN, program(&folder));
    for number in 1..=3 {
        client.success("fabric_list_strategies", json!({}));
        let pids = started(&folder);
        assert_eq!(pids.len(), number);
        // Once the helper dies instead of it.
        let column = usize::from(number == 2);
        kill("KILL", processes(&folder, column)[number - 1]);
        expect_gone(pids[number - 1]);
        let process = client.process();
        let ends = || process.stderr().matches("Fabric has ended.").count();
        poll(DEADLINE, || (ends() == number).then_some(())).expect("it is noticed");
    }
    let kind = "fabric-api-unavailable";
    let said = client.failure("fabric_list_strategies", json!({}), kind);
    assert!(said.contains("three times within a minute"), "{said}");
    assert_eq!(started(&folder).len(), 3);
}

/// A machine: its name, its program's name, version and command to serve, what a call says, what a check adds, and after
/// `!` what it does not.
const WHAT_CANNOT_BE_STARTED: &str = "\
none|other|exit|exit|Fabric 1.4 is not installed|not started!--version
another|fabric|echo 3.2; echo 1.4.x|exit|Fabric 1.4 is not installed|not answer --version
hangs|fabric|echo v1.4.470; exec sleep 1000|SERVE|Fabric 1.4 is not installed|not answer --version
fails|fabric|echo v1.4.470; false|SERVE|Fabric 1.4 is not installed|not answer --version
daemon|fabric|{ setsid sh -c 'while test -e $0; do sleep 0.1; done' $0 & }|exit|Fabric 1.4 is not installed|not answer --version
new|fabric-ai|echo v1.4.470|echo no /secret; exit 1|Run `fabric --setup`|no /secret
empty|fabric|echo v1.4.470|echo run fabric --setup; exit 1|Run `fabric --setup`|is v1.4.470
taken|fabric|sleep 0.1; echo 1.4.470|STAND_IN=\"$1 $2 $3 $4 other\"; SERVE|it ended at once|1.4.470
broken|fabric|echo old >&2; echo v1.4.470|seq -f line%g 60; seq -f [GIN-debug]%g 9; exit 1|it ended at once|line21!line20";

#[test]
fn what_cannot_be_started_is_told_without_paths() {
    for row in WHAT_CANNOT_BE_STARTED.lines() {
        let row: Vec<_> = row.split('|').collect();
        let [name, program_name, version, serve, says, found] = row[..] else {
            panic!("{row:?}")
        };
        let folder = machine(&format!("start-{name}"), program_name, version, serve);
        if name == "new" {
            fs::remove_file(folder.path(".config/fabric/.env")).unwrap();
        }
        let called = program(&folder).flags("--call fabric_list_patterns");
        let called = called.run(DEADLINE);
        called.expect_code(1).expect_stderr(says);
        let is_so = !called.stderr.contains(folder.text()) && !called.stderr.contains("/secret");
        assert!(is_so, "{called:?}");
        let checked = program(&folder).arg("--check").run(DEADLINE);
        let (found, lacks) = found.split_once('!').unwrap_or((found, "[GIN"));
        checked.expect_code(1).expect_stdout(found);
        assert!(!checked.stdout.contains(lacks), "{checked:?}");
        assert!(checked.stdout.matches("answer --version").count() < 2);
        // Checks that do not need Fabric are done nevertheless.
        checked.expect_stdout("ok  tools ");
    }
}

#[test]
fn the_check_says_what_was_started() {
    let serve =
        "[ -e $0.x ] || { touch $0.x; echo listen tcp: bind: taken; exit 1; }; env > $0.env; SERVE";
    let folder = machine("start-check", "fabric-ai", "echo v1.4.300", serve);
    let checked = program(&folder).arg("--check").run(DEADLINE);
    let file = folder.path("bin/fabric-ai").display().to_string();
    checked
        .expect_stdout(&format!("{file}, v1.4.300, up in "))
        .expect_stdout("key             accepted");
    expect_gone(started(&folder)[1]);
    let checked = program(&folder).flags("--check --json").run(DEADLINE);
    let report: Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!(report["fabric"]["program"], *file, "{report}");
    assert!(report["fabric"]["start_ms"].is_f64(), "{report}");
    // It is told its home where the system does not.
    let flag = format!("--start-fabric={file}");
    let homeless = Program::new([&*flag, "--check"]).env("PATH", "/usr/bin:/bin");
    let next = format!("fabric-mcp {flag} --call fabric_run_pattern");
    homeless.run(DEADLINE).expect_stdout(&next);
    let env = fs::read_to_string(format!("{file}.env")).unwrap();
    assert!(env.lines().any(|line| line.starts_with("HOME=/")), "{env}");
    for none in ["/no/fabric", "no-fabric", "/bin/false"] {
        let wrong = Program::new([&format!("--start-fabric={none}"), "--check"]).run(DEADLINE);
        wrong.expect_stdout("The program that --start-fabric names is not Fabric 1.4");
        let is_told_once = wrong.stdout.matches("answer --version").count() < 2;
        assert!(is_told_once, "{wrong:?}");
    }
}

#[test]
fn what_polls_starts_nothing_and_the_server_is_ready() {
    let folder = usual("start-polls");
    let server = HttpServer::start(program(&folder));
    let token = ("Authorization", "Bearer a-token-of-24-characters");
    for path in ["/readyz", "/metrics"] {
        server.get(path, &[token]).expect_status(200);
    }
    let words = "Fabric is started by the first call";
    server.process.wait_stderr(words);
    assert_eq!(started(&folder), [0; 0]);
    let headers = [token, ("MCP-Protocol-Version", "2025-06-18")];
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fabric_list_patterns"}});
    server.post(&headers, &call).expect_status(200);
    // Whose end is noticed only when it is asked: its helper stands still.
    let (pid, helper) = (started(&folder)[0], processes(&folder, 1)[0]);
    let becomes = |status| {
        let is_so = || (server.get("/readyz", &[token]).status == status).then_some(());
        poll(DEADLINE, is_so).expect("its state is seen");
    };
    becomes(200);
    kill("STOP", helper);
    kill("KILL", pid);
    becomes(503);
    kill("CONT", helper);
    becomes(200);
    assert_eq!(started(&folder), [pid]);
    // There was nothing to start for a call.
    fs::remove_file(folder.path("bin/fabric")).unwrap();
    server.post(&headers, &call).expect_status(200);
    server.get("/readyz", &[token]).expect_status(503);
}

#[test]
fn installing_offers_it_and_says_why() {
    let folder = usual("start-install");
    let install = |flags: &str| {
        let path = folder.path("bin").display().to_string();
        let program = Program::new([]).env("HOME", folder.text());
        let program = program.flags(&format!("{flags}--install cursor"));
        program.env("PATH", &path).run(DEADLINE).stdout
    };
    let entry = format!("\"--start-fabric={}\"", folder.path("bin/fabric").display());
    for (flags, why) in [
        ("", "FABRIC_BASE_URL is not set"),
        ("--start-fabric=fabric ", "--start-fabric was given"),
    ] {
        let said = install(flags);
        // Something may listen where Fabric does by default.
        let is_offered = !said.contains("the entry uses what listens");
        assert_eq!(said.contains(&entry), is_offered, "{said}");
        let is_so = said.lines().next().unwrap().contains(why) || !is_offered;
        assert!(is_so, "{said}");
        assert_eq!(said.contains("FABRIC_API_KEY"), !is_offered, "{said}");
    }
    let said = install("--fabric-url http://127.0.0.1:1 ");
    let is_so = !said.contains("start-fabric=") && said.contains("FABRIC_BASE_URL");
    assert!(is_so, "{said}");
    fs::remove_file(folder.path("bin/fabric")).unwrap();
    let said = install("");
    let is_so = said.contains("Then run --install again.") || said.contains("what listens");
    assert!(is_so, "{said}");
}
