//! Patterns from folders, without any Fabric: what is read, what is refused, and that nothing is sent or opened.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::expect::contains;
use crate::support::folder::TempFolder;
use crate::support::http::HttpServer;
use crate::support::process::Program;
use crate::support::stdio::Stdio;
use crate::support::web::Streamable;
use crate::support::{Caller, DEADLINE, ERAS, Era, names};

const DATED: &str = "Today is {{plugin:datetime:now}}. {{plugin:sys:env:HOME}}";

/// Two plain patterns, one with a plugin call, one that is code, and a strategy.
fn folder(name: &str) -> TempFolder {
    let folder = TempFolder::new(name);
    folder.write("patterns/plain/system.md", "Sum it up.\n");
    folder.write("patterns/plain/user.md", "CONTENT:\n");
    let translate = "Into {{lang}}, please: {{input}} ({{lang}})";
    folder.write("patterns/translate/system.md", translate);
    folder.write("patterns/dated/system.md", DATED);
    folder.write("patterns/code/system.md", "Write {{if (x)}}.");
    folder.write("patterns/README.md", "No pattern.");
    let cot = json!({"description": "Steps", "prompt": "Step by step."});
    folder.write("strategies/cot.json", cot.to_string());
    folder.write("strategies/broken.json", "no JSON");
    folder
}

fn program(folder: &TempFolder) -> Program {
    let dir = folder.path("patterns");
    Program::new(["--patterns-dir", dir.to_str().unwrap()])
}

fn prompt(result: &Value) -> &str {
    result["messages"][0]["content"]["text"].as_str().unwrap()
}

fn check(client: &mut impl Caller) {
    let mut result = |method: &str, params: Value| {
        let answer = client.ask(method, params);
        assert!(answer["result"].is_object(), "{method}: {answer}");
        answer["result"].clone()
    };
    let prompts = result("prompts/list", json!({}));
    assert_eq!(names(&prompts["prompts"]), ["plain", "translate"]);
    let resources = result("resources/list", json!({}));
    let all = ["code", "dated", "plain", "translate", "cot"];
    assert_eq!(names(&resources["resources"]), all);
    let arguments = json!({"lang": "{de}", "input_text": "a {{lang}} {{plugin:sys:env:HOME}} b"});
    let get = json!({"name": "translate", "arguments": arguments});
    let text = "Into {de}, please: a {{lang}} {{plugin:sys:env:HOME}} b ({de})";
    assert_eq!(prompt(&result("prompts/get", get)), text);
    // Fabric puts the input after a pattern without a place for it.
    let arguments = json!({"input_text": "x", "strategy_name": "cot"});
    let get = json!({"name": "plain", "arguments": arguments});
    let rendered = result("prompts/get", get);
    assert_eq!(prompt(&rendered), "Step by step.\nSum it up.\nx");
    let read = result("resources/read", json!({"uri": "fabric://pattern/dated"}));
    assert_eq!(read["contents"][0]["text"], DATED);
    let reference = json!({"type": "ref/resource", "uri": "fabric://pattern/{name}"});
    let params = json!({"ref": reference, "argument": {"name": "name", "value": "tr"}});
    let completion = result("completion/complete", params);
    assert_eq!(completion["completion"]["values"], json!(["translate"]));

    let refusal = client.ask("prompts/get", json!({"name": "dated", "arguments": {}}));
    contains(&refusal["error"]["message"], ["only Fabric can run"]);
    let arguments = json!({"pattern_name": "dated"});
    let details = client.success("fabric_get_pattern_details", arguments);
    assert_eq!(details["system_prompt"], DATED);
    let told = ["only Fabric can run", ". Follow it"];
    contains(&details["warnings"][0], told);
    let arguments = json!({"pattern_name": "plain"});
    let details = client.success("fabric_get_pattern_details", arguments);
    assert_eq!(details["user_prompt_template"], "CONTENT:\n");
    assert!(details.get("warnings").is_none(), "{details}");
    let found = client.success("fabric_list_patterns", json!({"query": "sum up"}));
    assert_eq!(found["matches"][0]["name"], "plain", "{found}");
    let strategies = client.success("fabric_list_strategies", json!({}));
    assert_eq!(names(&strategies["strategies"]), ["cot"]);

    // The tools that work, and no others: a run is the prompt, for the model that asked.
    let tools = client.ask("tools/list", json!({}))["result"]["tools"].take();
    let offered = "list_patterns get_pattern_details run_pattern list_strategies";
    let offered = Vec::from_iter(offered.split(' ').map(|name| format!("fabric_{name}")));
    assert_eq!(names(&tools), offered);
    // Nothing points to what is missing here.
    let said = tools.to_string();
    assert!(!said.contains("fabric_get_run"), "{said}");
    let run = &tools[2];
    let takes = Vec::from_iter(run["inputSchema"]["properties"].as_object().unwrap().keys());
    assert_eq!(takes.len(), 4, "{takes:?}");
    contains(&run["description"], ["for you to follow"]);
    let long = "word ".repeat(4000);
    let lang = json!({"variables": {"lang": "de"}});
    let name = json!({"variables": {"name": "Bob"}});
    for (pattern, more, prompt) in [
        ("plain", json!({}), format!("Sum it up.\n{long}")),
        (
            "plain",
            json!({"strategy_name": "CoT", "dry_run": true, "stream": true, "max_chars": 9}),
            format!("Step by step.\nSum it up.\n{long}"),
        ),
        ("translate", lang, format!("Into de, please: {long} (de)")),
        ("dated", name, format!("{DATED}\n{long}")),
        ("code", json!({}), format!("Write {{{{if (x)}}}}.\n{long}")),
    ] {
        let mut arguments = more;
        arguments["pattern_name"] = pattern.into();
        arguments["input_text"] = long.as_str().into();
        let result = client.call("fabric_run_pattern", arguments);
        let text = result["content"][0]["text"].as_str().unwrap();
        let (first, rest) = text.split_once("\n\n").unwrap();
        let is_code = ["dated", "code"].contains(&pattern);
        let is = if is_code { " not filled" } else { ", filled" };
        contains(first, [pattern, is, " in; ", "Follow it now"]);
        assert_eq!(rest, prompt);
        assert_eq!(result["content"].get(1).is_some(), is_code, "{result}");
        let is_told = result.to_string().contains("name\\\" was not used");
        assert_eq!(is_told, pattern == "dated", "{result}");
    }
    let model = json!({"pattern_name": "plian", "model_name": "x"});
    let call = json!({"name": "fabric_run_pattern", "arguments": model});
    let said = client.ask("tools/call", call).to_string();
    contains(said, ["`model_name` is not an argument", "named \\\"plian"]);
    let call = json!({"name": "fabric_list_models", "arguments": {}});
    let none = client.ask("tools/call", call);
    assert_eq!(none["error"]["code"], -32602, "{none}");
    let unknown = json!({"pattern_name": "plian"});
    let said = client.failure("fabric_get_pattern_details", unknown, "pattern-not-found");
    assert!(said.contains("plain"), "{said}");
}

#[test]
fn what_is_offered_works_in_every_era() {
    let folder = folder("patterns-dir");
    for era in ERAS {
        check(&mut Stdio::speaking(era, program(&folder)));
    }
    let server = Arc::new(HttpServer::start(program(&folder)));
    check(&mut Streamable::to(&server, Era::MODERN, None));
    let page = server.get("/", &[("Accept", "text/html")]).text();
    contains(&page, ["<b>is not needed</b>"]);
}

#[test]
fn skills_do_not_tell_to_run_what_cannot_be_run() {
    let folder = folder("patterns-dir-skills");
    let mut client = Stdio::speaking(Era::MODERN, program(&folder));
    let code = format!("Fabric would replace the code in double braces.\n\n{DATED}");
    for (name, end) in [
        ("plain", "on the user's input.\n\nSum it up.\n"),
        ("dated", &code),
    ] {
        let uri = format!("skill://fabric/{name}/SKILL.md");
        let read = client.result("resources/read", json!({"uri": uri}));
        let text = read["contents"][0]["text"].as_str().unwrap();
        assert!(text.ends_with(end), "{text}");
        assert!(!text.contains("fabric_run_pattern"), "{text}");
    }
}

/// A checkout of Fabric, its folder of data, and that of the patterns: with the strategies, if there are any.
#[test]
fn a_folder_is_known_by_what_is_in_it() {
    let folder = TempFolder::new("patterns-dir-checkout");
    folder.write("data/patterns/plain/system.md", "Sum it up.");
    let cot = json!({"description": "Steps", "prompt": "Step by step."});
    folder.write("data/strategies/cot.json", cot.to_string());
    folder.write("own/one/system.md", "One.");
    for (dir, tools) in [("", 4), ("data", 4), ("data/patterns", 4), ("own", 3)] {
        let dir = folder.path(dir).to_str().unwrap().to_owned();
        let program = || Program::new(["--patterns-dir", &dir]);
        let finished = program().flags("--list-tools --json").run(DEADLINE);
        let listed: Value = serde_json::from_str(&finished.stdout).unwrap();
        assert_eq!(listed["tools"].as_array().unwrap().len(), tools, "{dir}");
        let mut client = Stdio::speaking(Era::MODERN, program());
        for list in ["tools", "prompts", "resources/templates"] {
            let said = client
                .result(&format!("{list}/list"), json!({}))
                .to_string();
            assert_eq!(said.contains("strategy"), tools == 4, "{dir}: {said}");
        }
        let finished = program().arg("--check").run(DEADLINE);
        finished
            .expect_code(0)
            .expect_stdout(&format!("  tools           {tools}\n"));
        let finished = program().flags("--check --tool fabric_list_models");
        let finished = finished.run(DEADLINE);
        let words = "--tool: there is no tool";
        finished.expect_code(2).expect_stderr(words);
    }
}

#[test]
fn the_first_folder_that_has_a_name_wins() {
    let folder = TempFolder::new("patterns-dir-order");
    folder.write("one/both/system.md", "from one");
    folder.write("two/both/system.md", "from two");
    folder.write("two/only/system.md", "from two");
    // It may be filled later.
    std::fs::create_dir(folder.path("none")).unwrap();
    let dir = |dir| format!("--patterns-dir {}", folder.path(dir).display());
    let program = Program::new([]).flags(&["none", "one", "two"].map(dir).join(" "));
    let mut client = Stdio::speaking(Era::MODERN, program);
    for (name, text) in [("both", "from one"), ("only", "from two")] {
        let arguments = json!({"pattern_name": name});
        let details = client.success("fabric_get_pattern_details", arguments);
        assert_eq!(details["system_prompt"], text);
    }
    client.process.wait_stderr("none\\\": it has no pattern");
    std::fs::rename(folder.path("one"), folder.path("elsewhere")).unwrap();
    let left = client.success("fabric_list_patterns", json!({}));
    assert_eq!(left["patterns"], json!(["both", "only"]));
}

/// Whatever stands in a folder, it is neither waited for nor shown.
#[cfg(unix)]
#[test]
fn links_out_pipes_huge_and_broken_files_are_left_out_with_a_warning() {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    let folder = TempFolder::new("patterns-dir-hostile");
    let secret = folder.write("secret/system.md", "canary");
    let good = folder.write("patterns/good/system.md", "Good.");
    let dir = |name: &str| {
        let dir = folder.path("patterns").join(name);
        fs::create_dir(&dir).unwrap();
        dir.join("system.md")
    };
    symlink(&secret, dir("link_out")).unwrap();
    symlink(folder.path("secret"), folder.path("patterns/folder_out")).unwrap();
    symlink("../../secret/system.md", dir("link_up")).unwrap();
    symlink("/dev/zero", dir("device")).unwrap();
    symlink("system.md", dir("link_to_itself")).unwrap();
    symlink("nowhere", dir("dangling")).unwrap();
    symlink(&good, dir("link_inside")).unwrap();
    let mut mkfifo = std::process::Command::new("mkfifo");
    assert!(mkfifo.arg(dir("pipe")).status().unwrap().success());
    fs::create_dir(dir("folder")).unwrap();
    fs::write(dir("huge"), vec![b'x'; (1 << 20) + 1]).unwrap();
    fs::write(dir("just_right"), vec![b'x'; 1 << 20]).unwrap();
    fs::write(dir("not_utf8"), b"caf\xe9").unwrap();
    fs::write(dir("two\nlines"), "x").unwrap();
    fs::write(dir("résumé 2"), "x").unwrap();
    fs::create_dir(folder.path("patterns/empty")).unwrap();
    fs::create_dir(folder.path("patterns/.git")).unwrap();
    let odd = folder.path("patterns").join(OsStr::from_bytes(b"odd\xff"));
    fs::create_dir(odd).unwrap();
    folder.write("secret/cot.json", r#"{"prompt": "canary"}"#);
    symlink("secret", folder.path("strategies")).unwrap();
    fs::write(dir("planted"), "x").unwrap();
    let planted = folder.path("patterns/planted/system.md");
    // Only the superuser can give a file away.
    let is_planted = std::os::unix::fs::chown(planted, Some(12345), None).is_ok();
    // The folder itself may be a link.
    symlink("patterns", folder.path("link")).unwrap();
    let link = folder.path("link");
    let program = Program::new(["--patterns-dir", link.to_str().unwrap()]);
    let mut client = Stdio::speaking(Era::MODERN, program);
    let list = client.result("prompts/list", json!({}));
    let expected = ["good", "just_right", "link_inside", "planted", "résumé 2"];
    let mut expected = Vec::from(expected);
    expected.retain(|name| !is_planted || *name != "planted");
    assert_eq!(names(&list["prompts"]), expected);
    for name in ["link_out", "folder_out", "link_up", "pipe", "device"] {
        let arguments = json!({"pattern_name": name});
        client.failure("fabric_get_pattern_details", arguments, "pattern-not-found");
    }
    let process = &client.process;
    process.wait_stderr("pattern=device");
    for (name, why) in [
        ("link_out", "a link leads out"),
        ("folder_out", "a link leads out"),
        ("link_up", "a link leads out"),
        ("device", "a link leads out"),
        ("link_to_itself", "cannot be read"),
        ("dangling", "cannot be read"),
        ("pipe", "not a plain file"),
        ("/folder/", "not a plain file"),
        ("huge", "larger than 1 MiB"),
        ("not_utf8", "not UTF-8"),
        ("lines", "not a name that Fabric accepts"),
        ("odd", "not a name that Fabric accepts"),
        ("/strategies", "a link leads out"),
        ("planted", if is_planted { "the owner of" } else { "" }),
    ] {
        let is_it = |line: &&str| line.contains(name) && line.contains(why);
        let log = process.stderr();
        // However often it is read.
        let expected = usize::from(!why.is_empty());
        assert_eq!(log.lines().filter(is_it).count(), expected, "{name}: {log}");
    }
    assert!(!process.stderr().contains("empty"), "{}", process.stderr());
}

#[test]
fn changes_are_noticed() {
    let folder = folder("patterns-dir-changes");
    let program = program(&folder).flags("--catalog-ttl 0.05");
    let mut client = Stdio::speaking(Era::R2025_11_25, program);
    let before = client.result("prompts/list", json!({}));
    assert_eq!(names(&before["prompts"]), ["plain", "translate"]);
    folder.write("patterns/brand_new/system.md", "New.");
    let note = client.next_note();
    assert_eq!(note["method"], "notifications/prompts/list_changed");
    let after = client.result("prompts/list", json!({}));
    let found = names(&after["prompts"]);
    assert_eq!(found, ["brand_new", "plain", "translate"]);
    // A text is read when it is asked for.
    folder.write("patterns/plain/system.md", "Changed.");
    let arguments = json!({"pattern_name": "plain"});
    let details = client.success("fabric_get_pattern_details", arguments);
    assert_eq!(details["system_prompt"], "Changed.");
}

#[test]
fn the_faults_of_a_call_are_named_in_the_words_for_any_fabric() {
    let folder = folder("patterns-dir-lacking");
    let mut client = Stdio::speaking(Era::MODERN, program(&folder));
    let lacking = json!({"pattern_name": "translate", "dry_run": true});
    let said = client.failure("fabric_run_pattern", lacking, "invalid-request");
    assert!(said.contains("`variables` lacks \"lang\""), "{said}");
    // No other may follow.
    let several = json!({"pattern_name": "summarize, translate"});
    let said = client.failure("fabric_run_pattern", several, "invalid-request");
    assert!(said.contains(" Give the name of one pattern."), "{said}");
    let many = Value::from_iter((0..300).map(|i| (format!("v{i}"), "x")));
    let many = json!({"pattern_name": "plain", "variables": many});
    let said = client.failure("fabric_run_pattern", many, "invalid-request");
    assert_eq!(said.matches("300 entries").count(), 1, "{said}");
}

#[test]
fn a_folder_that_goes_away_is_an_error_without_its_path() {
    let folder = folder("patterns-dir-gone");
    let mut client = Stdio::speaking(Era::MODERN, program(&folder));
    client.result("prompts/list", json!({}));
    std::fs::rename(folder.path("patterns"), folder.path("elsewhere")).unwrap();
    let plain = json!({"pattern_name": "plain"});
    for (tool, arguments) in [
        ("fabric_list_patterns", json!({})),
        ("fabric_get_pattern_details", plain),
    ] {
        let said = client.failure(tool, arguments, "internal-server-error");
        contains(&said, ["Internal error. The folder of --patterns-dir"]);
        assert!(!said.contains(folder.text()), "{said}");
    }
}

#[test]
fn a_folder_without_patterns_and_a_second_source_are_refused_at_the_start() {
    let folder = folder("patterns-dir-start");
    folder.write("empty/README.md", "Nothing.");
    let dir = |name: &str| folder.path(name).to_str().unwrap().to_owned();
    for (dir, says) in [
        (dir("nowhere"), "no such folder: "),
        (dir("empty"), "has no pattern; give a folder that holds"),
        (dir("empty/README.md"), "not a folder: "),
        (dir("patterns/plain"), "is a pattern; give a folder that"),
    ] {
        let finished = Program::new(["--patterns-dir", &dir]).run(DEADLINE);
        finished.expect_code(2).expect_stderr(says);
    }
    for other in "--demo|--start-fabric|--fabric-url http://127.0.0.1:1".split('|') {
        let finished = program(&folder).flags(other).run(DEADLINE);
        finished
            .expect_code(2)
            .expect_stderr("--patterns-dir: ")
            .expect_stderr("leave one of them out");
    }
    let finished = program(&folder)
        .env("FABRIC_BASE_URL", "no URL")
        .env("FABRIC_MCP_START_FABRIC", "1")
        .run(DEADLINE);
    finished.expect_code(0);
}

#[test]
fn the_check_and_an_entry_for_a_client_know_folders() {
    let folder = folder("patterns-dir-check");
    std::fs::create_dir(folder.path("patterns/a{{b")).unwrap();
    folder.write("patterns/odd/System.md", "Named otherwise.");
    let finished = program(&folder).arg("--check").run(DEADLINE);
    finished
        .expect_code(0)
        .expect_stderr("a{{b\\\": not a name that Fabric accepts")
        .expect_stderr("odd\\\": it has no system.md")
        .expect_stdout(" (without Fabric)")
        .expect_stdout("Everything works.");
    assert!(!finished.stdout.contains("key"), "{}", finished.stdout);
    let dir = folder.path("patterns");
    let program = self::program(&folder).flags("--generate client-config cursor");
    let finished = program.env("FABRIC_API_KEY", "canary").run(DEADLINE);
    finished.expect_code(0);
    let config: Value = serde_json::from_str(&finished.stdout).unwrap();
    let entry = &config["mcpServers"]["fabric"];
    assert_eq!(entry["args"][0], "--patterns-dir");
    assert_eq!(entry["args"][1], dir.to_str().unwrap());
    assert!(!finished.stdout.contains("FABRIC_"), "{entry}");
}
