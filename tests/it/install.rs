//! `--install` and `--uninstall`: real client files in a temporary home.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use serde_json::Value;

use crate::support::fabric::FakeFabric;
use crate::support::folder::TempFolder;
use crate::support::http::HttpServer;
use crate::support::process::{Finished, Program};
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;
use crate::support::transports::{self, Wire};
use crate::support::{Caller, DEADLINE, Era};

/// Actions in a home.
impl TempFolder {
    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    /// The names in a folder, sorted.
    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The binary in this home, where every file is in the place that it has on Linux.
    fn binary(&self) -> Program {
        let config = self.path(".config");
        Program::new([])
            .env("HOME", self.text())
            .env("XDG_CONFIG_HOME", config.to_str().unwrap())
    }

    fn install(&self, client: &str) -> Finished {
        self.run(&format!("--install {client} --yes"))
    }

    fn run(&self, flags: &str) -> Finished {
        self.binary().flags(flags).run(DEADLINE)
    }
}

/// Clients whose file is in the home on every Unix: name, path, the key of their servers, and a typical file.
const FILES: [&str; 8] = [
    "cursor .cursor/mcp.json mcpServers => {\n  \"mcpServers\": {\n    \"other\": { \"command\": \"npx\" }\n  }\n}\n",
    "zed .config/zed/settings.json context_servers => // Zed settings\n//\n// see the docs\n{\n  \"theme\": \"One Dark\", \
     // dark\n  \"vim_mode\": true,\n}\n",
    "windsurf .codeium/windsurf/mcp_config.json mcpServers => {\r\n\t\"mcpServers\": \
     {\r\n\t\t\"github\": {\r\n\t\t\t\"command\": \"npx\",\r\n\t\t\t\"env\": {\"TOKEN\": \
     \"x\"}\r\n\t\t}\r\n\t}\r\n}",
    "cline .cline/data/settings/cline_mcp_settings.json mcpServers => \u{feff}{\"mcpServers\":{}}",
    "continue .continue/mcpServers/fabric.json mcpServers => {}",
    "kiro .kiro/settings/mcp.json mcpServers => {\n  \"mcpServers\": {\"a\": {\"command\": \"x\"}}\n}\n",
    "copilot-cli .copilot/mcp-config.json mcpServers => {\n  \"mcpServers\": {}\n}\n",
    "gemini-cli .gemini/settings.json mcpServers => {\n    /* kept */\n    \"ui\": {\"theme\": \"GitHub\"},\n    \
     \"mcpServers\": {\n        \"a\": {\"httpUrl\": \"https://a/mcp\"},\n        \"b\": {\"command\": \"b\"}\n    }\n}\n",
];

const URL: &str = "http://127.0.0.1:8000/mcp";
const EMPTY: &str = "{\n  \"mcpServers\": {}\n}\n";

/// The file as a client reads it: without comments, trailing commas and byte order mark. For these files only.
fn parsed(text: &str) -> Value {
    let lines = text
        .trim_start_matches('\u{feff}')
        .lines()
        .map(|line| line.split("// ").next().unwrap());
    let text = lines.filter(|line| !line.trim_start().starts_with("//"));
    let text: String = text.collect::<Vec<_>>().join("\n");
    let text = text.replace("/* kept */", "").replace(",\n}", "\n}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn files_of_real_clients_take_the_entry_and_give_it_back() {
    let home = TempFolder::new("home-clients");
    for row in FILES {
        let (place, before) = row.split_once(" => ").unwrap();
        let words: Vec<_> = place.split(' ').collect();
        let [client, file, key] = words[..] else {
            panic!("{place}")
        };
        let path = home.write(file, before);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let finished = home.run(&format!("--demo --install {client} --yes"));
        finished
            .expect_code(0)
            .expect_stdout(path.to_str().unwrap())
            .expect_stdout("+ \"fabric\": {");
        let after = home.read(file);
        let (old, mut new) = (parsed(before), parsed(&after));
        let servers = new[key].as_object_mut().unwrap();
        let own = servers.remove("fabric").unwrap();
        assert_eq!(own["args"][0], "--demo", "{client}");
        if servers.is_empty() && old.get(key).is_none() {
            new.as_object_mut().unwrap().remove(key);
        }
        assert_eq!(old, new, "{client}: {after}");
        // Every original line is still there, but for a comma, or a bracket at its end.
        let lines = before
            .lines()
            .map(|line| line.trim_end().trim_end_matches('}'));
        for line in lines.filter(|line| line.trim().len() > 1 && !line.contains("{}")) {
            assert!(after.contains(line), "{client}: {line:?} in {after}");
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o640, "{client}");
        assert_eq!(home.read(&format!("{file}.backup")), before, "{client}");
        // A second time changes nothing.
        let done = home.run(&format!("--demo --install {client}"));
        done.expect_code(0).expect_stdout("nothing to do");
        assert_eq!(home.read(file), after, "{client}");
        let update = format!("--demo --read-only --install {client} --yes");
        home.run(&update).expect_code(0);
        let after = home.read(file);
        let done = home.run(&format!("--uninstall {client} --yes"));
        done.expect_code(0).expect_stdout("- \"fabric\": {");
        assert_eq!(home.read(&format!("{file}.backup-3")), after, "{client}");
        assert_eq!(home.read(file), before, "{client}");
        let done = home.run(&format!("--uninstall {client}"));
        done.expect_code(0).expect_stdout("nothing to do");
    }
}

#[test]
fn a_missing_file_is_created_and_reported() {
    let home = TempFolder::new("home-fresh");
    let finished = home.run(&format!("--install cursor --yes --url {URL}"));
    finished
        .expect_code(0)
        .expect_stdout("will be created, and its folder")
        .expect_stdout("is Cursor installed?");
    // It starts nothing.
    assert!(!finished.stdout.contains("clean-up"), "{finished:?}");
    let expected = "{\n  \"mcpServers\": {\n    \"fabric\": {\n      \"url\": \
        \"http://127.0.0.1:8000/mcp\",\n      \"headers\": {\n        \"Authorization\": \"Bearer \
        ${env:FABRIC_MCP_AUTH_TOKEN}\"\n      }\n    }\n  }\n}\n";
    assert_eq!(home.read(".cursor/mcp.json"), expected);
    let found = home.names(".cursor");
    assert_eq!(found, ["mcp.json"], "nothing to keep, nothing left over");
    // If the folder exists, only the file is created.
    fs::create_dir_all(home.path(".codeium/windsurf")).unwrap();
    let finished = home.install("windsurf");
    finished.expect_code(0).expect_stdout("  will be created\n");
    // Uninstalling from nothing creates nothing.
    let done = home.run("--uninstall cline --yes");
    done.expect_code(0).expect_stdout("nothing to do");
    assert!(!home.path(".cline").exists());
    // Of several at once, each that says so has written its entry.
    let install = |name| home.run(&format!("--demo --install cursor --yes --name n{name}"));
    thread::scope(|scope| {
        let begun: [_; 8] = std::array::from_fn(|name| scope.spawn(move || install(name)));
        let done = begun.map(|begun| begun.join().unwrap().code == Some(0));
        let text = home.read(".cursor/mcp.json");
        let found = std::array::from_fn(|name| text.contains(&format!("\"n{name}\"")));
        assert_eq!(done, found, "{text}");
    });
}

#[test]
fn an_entry_keeps_runs_where_it_says_and_tells_what_it_lacks() {
    let home = TempFolder::new("home-history");
    let fabric = FakeFabric::start();
    let url = fabric.url();
    let state = home.path("state").display().to_string();
    let install = |flags: &str| {
        let flags = format!("--fabric-url {url} --install windsurf {flags}");
        let program = home.binary().env("XDG_STATE_HOME", &state);
        program.flags(&flags).run(DEADLINE)
    };
    let file = ".codeium/windsurf/mcp_config.json";
    let folder = home.path("state/fabric-mcp");
    let args = |text: &str| {
        let file: Value = serde_json::from_str(text).unwrap();
        let args = file["mcpServers"]["fabric"]["args"].as_array();
        args.unwrap().len()
    };
    let kept = format!("Runs will be kept for 30 days in {}.", folder.display());
    install("--yes")
        .expect_code(0)
        .expect_stdout(&kept)
        .expect_stdout("Check: it works, with ");
    let text = home.read(file);
    let words = [
        "\"--history\"",
        "\"--state-dir\"",
        folder.to_str().unwrap(),
        "\"2592000\"",
    ];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    // The check of the entry left no folder.
    fs::create_dir(&state).unwrap();
    fs::create_dir(&folder).unwrap();
    let call = home.binary().env("XDG_STATE_HOME", &state);
    let call = call.flags("--demo --call fabric_get_run").run(DEADLINE);
    let give = format!(": give --state-dir {}.", folder.display());
    call.expect_code(0).expect_stdout(&give);
    // Chosen once, it stays chosen; an entry without runs shows no choice.
    install("--yes --read-only").expect_code(0);
    install("--yes").expect_stdout(&kept);
    install("").expect_code(0).expect_stdout("nothing to do");
    let done = install("--yes --no-history");
    done.expect_code(0).expect_stdout("in memory only");
    assert_eq!(args(&home.read(file)), 0);
    // So does a no.
    let again = install("--yes");
    again.expect_code(0).expect_stdout("nothing to do");
    assert_eq!(args(&home.read(file)), 0);
    let runs = home.path("runs").display().to_string();
    for row in "--history --keep-runs 60 => 60 s in | => 60 s in |--history --keep-runs 2592000 \
        => 30 days in |--history --state-dir /runs => 30 days in /runs.| => 30 days in /runs."
        .split('|')
    {
        let (flags, kept) = row.split_once(" => ").unwrap();
        let flags = format!("{flags} --yes").replace("/runs", &runs);
        install(&flags).expect_code(0);
        install(&flags).expect_stdout("nothing to do");
        let told = install(&format!("{flags} --max-runs 3"));
        let kept = kept.replace("/runs", &runs);
        told.expect_code(0).expect_stdout(&kept);
        assert_eq!(args(&home.read(file)), 7, "{told:?}");
    }
    fs::remove_file(home.path(file)).unwrap();
    let told = install("--yes --keep-runs 7776000");
    told.expect_stdout(&format!(
        "Runs will be kept for 90 days in {}",
        folder.display()
    ));
    // A folder of one's own stays, in either spelling, and so does its time.
    let settled = format!("--state-dir {runs}");
    install(&format!("--keep-runs 60 {settled} --yes")).expect_code(0);
    install("--yes").expect_stdout("nothing to do");
    let text = home.read(file);
    let spelled = text.replace("\"--state-dir\", \"", "\"--state-dir=");
    assert_ne!(text, spelled);
    home.write(file, spelled);
    install("--yes").expect_code(0);
    assert_eq!(home.read(file), text);
    install("--yes --no-history").expect_code(0);
    for settled in ["--keep-runs 60", &settled] {
        install(settled)
            .expect_code(1)
            .expect_stdout("Nothing was changed")
            .expect_stdout(&settled[..11]);
    }
    // What a client would find is a mistake now.
    let from = format!("--install windsurf --patterns-dir {}", home.text());
    let none = home.run(&format!("{from}/none --yes"));
    refused(&none, "--patterns-dir");
    home.write("one/p/system.md", "Do it.");
    home.run(&format!("{from}/one"))
        .expect_stdout("Check: it works, with 1 pattern.\n");
    let unused = home.path("one/p/system.md").display().to_string();
    let unused = home.run(&format!("{from}/one --yes --state-dir {unused}"));
    refused(&unused, "--state-dir: not a folder");
    let dead = home.run("--install windsurf --fabric-url http://127.0.0.1:1");
    dead.expect_code(1)
        .expect_stdout("Check: Nothing listens at http://127.0.0.1:1")
        .expect_stdout(&format!("-     \"FABRIC_BASE_URL\": \"{}\"", fabric.url()));
    let text = home.read(file).replace(
        "\"FABRIC_API_KEY\": \"\"",
        "\"FABRIC_API_KEY\": \"${input:k} {{k}}\"",
    );
    home.write(
        file,
        text.replace("\"args\"", "\"disabled\": true,\n      \"args\""),
    );
    let told = install("--no-history");
    told.expect_code(0)
        .expect_stdout("nothing to do")
        .expect_stdout("\"disabled\": true keeps Windsurf from")
        .expect_stdout("Windsurf does not fill that in");
    // A folder out of reach: said once, and runs are kept in memory; given by hand, it ends the start.
    home.write("in-the-way", "");
    let state = home.path("in-the-way/runs");
    let program = |more: &str| {
        let flags = format!("--state-dir {} {more}", state.display());
        Program::with(&fabric).flags(&flags)
    };
    let no_name = home.path(&"n".repeat(300)).display().to_string();
    let check = Program::with(&fabric).flags(&format!("--check --state-dir {no_name}"));
    for program in [program("--plain-results"), check] {
        let done = program.run(DEADLINE);
        done.expect_code(1).expect_stderr("--state-dir");
    }
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, program("--history --keep-runs 7776000"));
    client.success(
        "fabric_run_pattern",
        serde_json::json!({"pattern_name": "summarize", "input_text": "x"}),
    );
    let listed = client.success("fabric_get_run", serde_json::json!({}));
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "{listed}");
    let found = client.stderr();
    let found = found.matches("runs are kept in memory only").count();
    assert_eq!(found, 1);
    let token = "a-token-that-is-long-enough";
    let server = program("--history").env("FABRIC_MCP_AUTH_TOKEN", token);
    let mut named = transports::open(Wire::Streamable, Era::MODERN, server, Some(token));
    let none = named.success("fabric_get_run", serde_json::json!({}))["warnings"].take();
    let said = none[0].as_str().unwrap();
    let is_so = said.contains("No run of yours is kept") && !said.contains("--state-dir");
    assert!(is_so, "{said}");
}

#[test]
fn nobody_to_ask_means_no() {
    let home = TempFolder::new("home-ask");
    let before = "{\"mcpServers\": {\"fabric\": {\"command\": \"\u{202e}\u{9b}mine\", \"env\": {\"K\": \"canary\"}}}}";
    home.write(".cursor/mcp.json", before);
    // Somebody else's entry: --yes is not enough.
    let actions = "--install cursor|--uninstall cursor";
    for action in format!("{actions}|{} --yes", actions.replace('|', " --yes|")).split('|') {
        let finished = home.run(action);
        finished
            .expect_code(1)
            .expect_stdout(
                "never replaces or removes another program's entry: for that, use a terminal",
            )
            .expect_stdout("--name NAME")
            .expect_stdout("- \"fabric\"")
            .expect_stdout("\u{fffd}\\u009bmine");
        assert!(!finished.stdout.contains("canary"), "{finished:?}");
        assert_eq!(home.read(".cursor/mcp.json"), before);
    }
    assert_eq!(home.names(".cursor"), ["mcp.json"]);
    home.run("--install cursor --yes --name patterns")
        .expect_code(0);
    let after = home.read(".cursor/mcp.json");
    assert!(
        after.starts_with(&before[..before.len() - 2])
            && after.contains("\"patterns\": {\"command\": ")
    );
    assert_eq!(home.read(".cursor/mcp.json.backup"), before);
    home.run("--uninstall cursor --yes --name patterns")
        .expect_code(0);
    assert_eq!(home.read(".cursor/mcp.json"), before);
    let expected = ["mcp.json", "mcp.json.backup-2"];
    assert_eq!(home.names(".cursor"), expected, "of backups the latest");
    // But what somebody else's entry was is nowhere else.
    home.write(".cursor/mcp.json.backup", before);
    home.write(
        ".cursor/mcp.json",
        before.replace("\u{202e}\u{9b}mine", "/x/fabric-mcp"),
    );
    home.install("cursor").expect_code(0);
    assert_eq!(home.read(".cursor/mcp.json.backup"), before);
}

#[test]
fn links_are_followed_and_stay_links() {
    let home = TempFolder::new("home-links");
    let real = home.write("dotfiles/mcp.json", "");
    fs::create_dir_all(home.path(".cursor")).unwrap();
    symlink("../dotfiles/mcp.json", home.path(".cursor/mcp.json")).unwrap();
    let finished = home.install("cursor");
    finished
        .expect_code(0)
        .expect_stdout("is a link to")
        .expect_stdout(real.to_str().unwrap());
    assert!(home.path(".cursor/mcp.json").is_symlink() && !real.is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("\"fabric\""));
    assert_eq!(home.names("dotfiles"), ["mcp.json", "mcp.json.backup"]);
    fs::remove_file(home.path("dotfiles/mcp.json.backup")).unwrap();
    home.run("--uninstall cursor --yes").expect_code(0);
    assert_eq!(home.read(".cursor/mcp.json"), EMPTY, "nothing dangles");
    // The name of what it leads to may be somebody else's work.
    home.write("\u{1b}c/mcp_config.json", "{}");
    fs::create_dir_all(home.path(".codeium")).unwrap();
    symlink("../\u{1b}c", home.path(".codeium/windsurf")).unwrap();
    let finished = home.install("windsurf");
    let words = "/\u{fffd}c/mcp_config.json";
    finished.expect_code(0).expect_stdout(words);
    // A dangling link.
    fs::create_dir_all(home.path(".gemini")).unwrap();
    symlink("/nowhere/at/all", home.path(".gemini/settings.json")).unwrap();
    let dangling = "link to a file that is not there";
    refused(&home.install("gemini-cli"), dangling);
}

#[track_caller]
fn refused(finished: &Finished, why: &str) {
    finished
        .expect_code(1)
        .expect_stderr(why)
        .expect_stderr("Nothing was changed");
    assert_eq!(finished.stdout, "");
    let found = finished.stderr.trim_end().lines().count();
    assert_eq!(found, 1, "{finished:?}");
}

#[test]
fn files_that_cannot_be_edited_are_reported_and_unchanged() {
    let home = TempFolder::new("home-refused");
    let file = ".cursor/mcp.json";
    let huge = format!("{{\"x\": \"{}\"}}", "y".repeat(8 << 20));
    let eof = "it is not JSON: EOF while parsing an object at line 2 column 1";
    let rows: [(&[u8], &str); 3] = [
        (b"{\"mcpServers\": {\n}", eof),
        (b"\xff\xfe{\0}\0", "it is not UTF-8"),
        (huge.as_bytes(), "it is larger than 8 MiB"),
    ];
    for (before, why) in rows {
        home.write(file, before);
        for action in ["--install", "--uninstall"] {
            refused(&home.run(&format!("{action} cursor --yes")), why);
            assert!(fs::read(home.path(file)).unwrap() == before, "{why}");
            assert_eq!(home.names(".cursor"), ["mcp.json"], "{why}");
        }
    }
    let path = home.write(file, "{}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    refused(&home.install("cursor"), "it is read-only");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused(&home.install("cursor"), "it is not a plain file");
    fs::remove_dir_all(home.path(".cursor")).unwrap();
    home.write(".cursor", "a file in the folder's place");
    let finished = home.install("cursor");
    finished.expect_code(1).expect_stderr("Nothing was changed");
    // Without a home there is no file.
    let finished = Program::new(["--install", "cursor", "--yes"]).run(DEADLINE);
    finished.expect_code(1).expect_stderr("HOME");
}

#[test]
fn clients_without_json_get_their_command_or_the_text() {
    let home = TempFolder::new("home-others");
    for (client, said) in [
        ("codex", "codex mcp add fabric --env"),
        ("goose", "extensions:"),
        ("jetbrains", "\"mcpServers\": {"),
        ("open-webui", "URL: http://127.0.0.1:8000/mcp"),
    ] {
        let left = match client {
            "open-webui" => "First: put the server's token in the place of YOUR_TOKEN",
            _ => "set FABRIC_API_KEY there.\nNext: ",
        };
        let finished = home.install(client);
        finished
            .expect_code(0)
            .expect_stdout(said)
            .expect_stdout(left)
            .expect_stdout("does not edit");
        // A client that only connects has no say in that.
        let found = finished.stdout.contains("Runs will be kept");
        assert_eq!(found, client != "open-webui", "{finished:?}");
        home.run(&format!("--uninstall {client}"))
            .expect_code(0)
            .expect_stdout("\"fabric\" there yourself");
    }
    assert_eq!(home.names("."), Vec::<String>::new());
    let program = Program::new(["--install", "codex"]).env("FABRIC_API_KEY", "k");
    let part = "has a command that adds servers, but the command cannot pass on FABRIC_API_KEY";
    let start = "start it with `codex` from a shell where FABRIC_API_KEY is set: ";
    let said = program.run(DEADLINE);
    said.expect_stdout(part).expect_stdout(start);
}

#[test]
fn a_project_of_claude_code_is_the_folder_one_is_in() {
    let home = TempFolder::new("home-project");
    let folder = home.path("my project");
    fs::create_dir(&folder).unwrap();
    let inside = |args: [&str; 3]| {
        Program::new(args)
            .after(&format!("cd '{}'", folder.display()))
            .run(DEADLINE)
    };
    let finished = inside(["--install", "claude-code", "--yes"]);
    finished.expect_code(0).expect_stdout("will be created");
    let file: Value = serde_json::from_str(&home.read("my project/.mcp.json")).unwrap();
    assert_eq!(file["mcpServers"]["fabric"]["type"], "stdio");
    assert!(Path::new(file["mcpServers"]["fabric"]["command"].as_str().unwrap()).is_absolute());
    let uninstall = || inside(["--uninstall", "claude-code", "--yes"]).stdout;
    assert!(uninstall().contains("\n  the file will be removed: "));
    let found = home.names("my project");
    assert_eq!(found, [".mcp.json.backup"], "it was created");
    inside(["--install", "claude-code", "--yes"]).expect_code(0);
    home.write("my project/.mcp.json.backup", "{\"x\": 1}");
    assert!(!uninstall().contains("removed"));
    assert_eq!(home.read("my project/.mcp.json"), EMPTY, "it was there");
}

/// A file, the flags that write it, an empty place in it, and that place filled in.
const FILLED: &str = r#".cursor/mcp.json|--install cursor --yes|"FABRIC_API_KEY": ""|"FABRIC_API_KEY": "canary-key"
.config/zed/settings.json|--install zed --yes --url URL|Bearer YOUR_TOKEN|Bearer fmcp_canary
.config/Claude/claude_desktop_config.json|--install claude-desktop --yes --url URL|"FABRIC_MCP_AUTH_TOKEN": ""|"FABRIC_MCP_AUTH_TOKEN": "fmcp_canary""#;

#[test]
fn a_key_or_token_that_was_filled_in_stays() {
    let home = TempFolder::new("home-filled");
    let server = FakeFabric::start();
    let url = format!("{}/mcp", server.url());
    for row in FILLED.lines() {
        let row: Vec<_> = row.split('|').collect();
        let [file, flags, place, filled] = row[..] else {
            panic!("{row:?}")
        };
        let run = |more: &str| home.run(&format!("{} {more}", flags.replace("URL", URL)));
        run("").expect_code(0);
        let text = home.read(file);
        assert!(text.contains(place), "{text}");
        let mended = text.replace(place, filled);
        home.write(file, &mended);
        run("").expect_code(0).expect_stdout("nothing to do");
        home.write(file, text.replace("Bearer YOUR_TOKEN", "Bearer "));
        run("").expect_code(0).expect_stdout("First");
        home.write(file, &mended);
        // Another change is made, and does not print the secret.
        let changed = if flags.contains("--url") {
            run(&format!("--url {url}"))
        } else {
            run("--max-runs 3")
        };
        changed.expect_code(0).expect_stdout("…");
        let is_so = !changed.stdout.contains("canary") && home.read(file).contains(filled);
        assert!(is_so, "{changed:?}");
        let (elsewhere, gone) = match flags.contains("--url") {
            true => ("--url http://localhost:1/mcp", &*url),
            false => ("--fabric-url http://localhost:1", "--max-runs\", \"3\""),
        };
        run(elsewhere).expect_stdout(gone);
        assert!(home.read(file).contains(place), "no other host gets it");
    }
    let sent = server.requests_of("POST /mcp");
    let sent: Vec<_> = sent.iter().map(|one| one.header("Authorization")).collect();
    let filled = Some("Bearer fmcp_canary");
    let checked = !sent.is_empty() && sent.iter().all(|token| *token == filled);
    assert!(checked, "the check has the entry's token: {sent:?}");
}

#[test]
fn where_callers_sign_in_no_token_is_shown() {
    let (home, server) = (TempFolder::new("home-oauth"), FakeFabric::start());
    let challenge =
        "Bearer resource_metadata=\"http://127.0.0.1/.well-known/x\", scope=\"fabric:run\"";
    let refusal = Reply::failure(401, Value::Null).header("WWW-Authenticate", challenge);
    server.on("GET /mcp", refusal);
    let url = format!("{}/mcp", server.url());
    let install = |token: &str| {
        let program = home.binary().env("FABRIC_MCP_AUTH_TOKEN", token);
        let done = program.flags(&format!("--install cursor --yes --url {url}"));
        let done = done.run(DEADLINE);
        done.expect_code(0);
        let file = parsed(&home.read(".cursor/mcp.json"));
        (done, file["mcpServers"]["fabric"]["headers"].clone())
    };
    let (done, headers) = install("");
    done.expect_stdout("Callers sign in to this server");
    let is_so = headers.is_null() && !done.stdout.contains("Check: ");
    assert!(is_so, "{done:?}");
    install("").0.expect_stdout("nothing to do");
    // Nothing else shows whose entry it is.
    let gone = home.run("--uninstall cursor --yes");
    gone.expect_code(1).expect_stdout("give --url with its URL");
    home.run(&format!("--uninstall cursor --yes --url {url}"))
        .expect_code(0);
    assert!(!home.path(".cursor/mcp.json").exists());
    let open = HttpServer::start(Program::with(&server));
    for client in ["cursor", "claude-desktop"] {
        let flags = format!("--install {client} --yes --url http://{}/mcp", open.address);
        let done = home.run(&flags);
        done.expect_code(0).expect_stdout("asks for no token.\n");
        assert!(!done.stdout.contains("First:"), "{done:?}");
    }
    home.write(".cursor/mcp.json", "");
    let closed = home.run("--install cursor --url http://127.0.0.1:1/mcp");
    closed.expect_stdout("Check the URL of --url, ");
    assert!(!closed.stdout.contains("--connect"), "{closed:?}");
    let (_, headers) = install("fmcp_canary");
    let reference = "Bearer ${env:FABRIC_MCP_AUTH_TOKEN}";
    assert_eq!(headers["Authorization"], reference);
    // Nobody was asked about runs before.
    let started = home.run("--demo --install cursor");
    started.expect_stdout("Runs will be kept for 30 days");
    let text = home.read(".cursor/mcp.json");
    home.write(".cursor/mcp.json", text.replace(reference, "Bearer own"));
    assert_eq!(install("").1["Authorization"], "Bearer own");
}

#[test]
fn what_the_user_added_to_the_entry_stays() {
    let home = TempFolder::new("home-added");
    let flags = "--read-only --deny-pattern ai --install cursor";
    home.run(&format!("{flags} --yes")).expect_code(0);
    let added = "\"fabric\": {\n      \"disabled\": true,\n      \"autoApprove\": [\"a\", 1],";
    let text = home.read(".cursor/mcp.json");
    let text = text.replace("\"fabric\": {", added);
    let variables = r#""env": {"HTTPS_PROXY": "http://p:1", "FABRIC_MCP_DEFAULT_MODEL": "m","#;
    let with_variable = text.replace("\"env\": {", variables);
    assert_ne!(text, with_variable);
    home.write(".cursor/mcp.json", &with_variable);
    let finished = home.run(flags);
    finished.expect_code(0).expect_stdout("nothing to do");
    let finished = home.run(&format!("--install cursor --yes --url {URL}"));
    let lost = "\"--deny-pattern\", \"ai\", \"--read-only\"]";
    finished.expect_code(0).expect_stdout(lost);
    let file: Value = serde_json::from_str(&home.read(".cursor/mcp.json")).unwrap();
    let mut entry = file["mcpServers"]["fabric"].clone();
    entry["headers"].take();
    let expected = serde_json::json!({"autoApprove": ["a", 1], "disabled": true, "headers": null,
        "url": "http://127.0.0.1:8000/mcp"});
    assert_eq!(entry, expected, "and nothing of how it was started");
}

#[test]
fn the_remaining_step_for_the_secret_is_printed() {
    let home = TempFolder::new("home-secret");
    let said = |key: &str, flags: &str| {
        let program = home.binary().env("FABRIC_API_KEY", key);
        program
            .flags(&format!("--yes {flags}"))
            .run(DEADLINE)
            .stdout
    };
    let empty = "First, if your Fabric needs a key, set FABRIC_API_KEY in that file.\nNext: ";
    let refers = "First: quit Cursor, and start it with `cursor .` from a shell where \
        FABRIC_API_KEY is set: the file only refers to it.\nNext: ";
    assert!(said("", "--install cursor").contains(empty));
    let is_so = said("k", "--install zed").contains(empty);
    assert!(is_so, "Zed refers to no variables");
    assert!(said("k", "--install cursor").contains(refers));
    assert!(said("", "--install cursor").contains(empty), "again");
    let filled_in = home.read(".cursor/mcp.json");
    let filled_in = filled_in.replace("API_KEY\": \"\"", "API_KEY\": \"canary\"");
    home.write(".cursor/mcp.json", &filled_in);
    assert!(said("k", "--install cursor").contains("nothing to do"));
    // The Fabric that was chosen before stays chosen, and so does its key.
    let elsewhere = filled_in.replace(":8080", ":1");
    home.write(".cursor/mcp.json", &elsewhere);
    assert!(said("", "--install cursor").contains("nothing to do"));
    let is_so = !said("", "--install windsurf --demo").contains("First");
    assert!(is_so, "the demo needs no key");
}

#[test]
fn files_are_private_from_the_first_moment() {
    let home = TempFolder::new("home-private");
    let mode = |file: &str| {
        let facts = fs::symlink_metadata(home.path(file)).ok()?;
        Some(facts.permissions().mode() & 0o777)
    };
    let install = || {
        let program = home.binary().flags("--install cursor --yes");
        program.after("umask 0").run(DEADLINE).expect_code(0);
    };
    install();
    assert_eq!(mode(".cursor/mcp.json"), Some(0o600), "a key goes in there");
    // Somebody who looks all the time sees no other mode either.
    let file = home.path(".cursor/mcp.json");
    let seen = thread::scope(|scope| {
        // Dropped also when an assertion fails, so that the watcher ends.
        let goes_on = Arc::new(());
        let watched = Arc::downgrade(&goes_on);
        let watcher = scope.spawn(move || {
            let mut seen = 0;
            while watched.strong_count() > 0 {
                seen |= mode(".cursor/mcp.json.backup").unwrap_or_default();
            }
            seen
        });
        for _ in 0..20 {
            let _ = fs::remove_file(home.path(".cursor/mcp.json.backup"));
            home.write(".cursor/mcp.json", "{}");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            install();
        }
        drop(goes_on);
        watcher.join().unwrap()
    });
    assert_eq!(seen, 0o600);
    // A file that others could read is closed to them when a key goes in again, and only then.
    for (key, expected) in [("", 0o644), ("canary-key", 0o600)] {
        let entry = format!(
            "{{\"command\": \"/x/fabric-mcp\", \"env\": {{\"FABRIC_API_KEY\": \"{key}\"}}}}"
        );
        let words = format!("{{\"mcpServers\": {{\"fabric\": {entry}}}}}");
        home.write(".cursor/mcp.json", words);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        install();
        assert_eq!(mode(".cursor/mcp.json"), Some(expected), "{key}");
    }
    assert_eq!(mode(".cursor/mcp.json.backup"), Some(0o600));
}

#[test]
fn no_mode_but_the_file_s_own_changes_through_a_link() {
    let home = TempFolder::new("home-swapped");
    let victim = home.write("victim", "mine");
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&victim, private).unwrap();
    let file = home.write(".cursor/mcp.json", "{}");
    let backup = home.path(".cursor/mcp.json.backup");
    thread::scope(|scope| {
        // Dropped also when an assertion fails, so that the other thread ends.
        let goes_on = Arc::new(());
        let (swaps, backup, victim) = (Arc::downgrade(&goes_on), &backup, &victim);
        // Puts a link in the backup's place as soon as that is there.
        scope.spawn(move || {
            while swaps.strong_count() > 0 {
                if !backup.is_symlink() && fs::remove_file(backup).is_ok() {
                    let _ = symlink(victim, backup);
                }
            }
        });
        for _ in 0..20 {
            let _ = fs::remove_file(backup);
            fs::write(&file, "{}").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
            home.install("cursor").expect_code(0);
        }
    });
    let mode = fs::metadata(&victim).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert_eq!(home.read("victim"), "mine");
}
