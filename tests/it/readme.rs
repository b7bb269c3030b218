//! Checks the README and the help. The demo prints what the picture in the README shows, and the README lists all
//! tools. Clients get the JSON that the help shows, nginx and Caddy accept the lines for them, and the messages that
//! the help quotes exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::layers::collect;
use crate::support::expect::contains;
use crate::support::folder::TempFolder;
use crate::support::process::Program;
use crate::support::{DEADLINE, Era};

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"))
        .unwrap()
        .replace("\r\n", "\n")
}

/// What `--help TOPIC` prints.
fn topic(name: &str) -> String {
    let finished = Program::new(["--help", name]).run(DEADLINE);
    finished.expect_code(0);
    finished.stdout
}

/// All source files as one text.
fn sources() -> String {
    let mut files = Vec::new();
    collect(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    texts.collect()
}

/// The text with its numbers, which differ between runs, masked.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out.replace("#.#", "#").replace("#.#", "#")
}

#[test]
fn the_picture_shows_what_the_first_command_prints() {
    let text = readme();
    let (_, first) = text.split_once("\n```sh\n").expect("a block begins");
    assert_eq!(first.lines().nth(1), Some("fabric-mcp --demo --check"));
    let finished = Program::new(["--demo", "--check"]).run(DEADLINE);
    finished.expect_code(0);
    let picture =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(".github/demo.svg")).unwrap();
    // The text between the tags; an empty line has no element.
    let lines = picture.lines().filter(|line| line.starts_with("<text"));
    let text = |line: &str| {
        let inside = line.split('<').filter_map(|part| part.split_once('>'));
        let inside: String = inside.map(|(_, text)| text).collect();
        inside
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&")
    };
    let mut shown: Vec<String> = lines.map(text).collect();
    assert_eq!(shown.remove(0), "$ fabric-mcp --demo --check");
    let printed = finished.stdout.lines();
    let printed: Vec<&str> = printed.filter(|line| !line.is_empty()).collect();
    let [shown, printed] =
        [shown.join("\n"), printed.join("\n")].map(|text| without_numbers(&text));
    assert_eq!(shown, printed, ".github/demo.svg, and what is printed");
}

/// The JSON that a topic shows, without its indentation.
fn json_of(name: &str) -> Value {
    let text = topic(name);
    let (_, after) = text.split_once("\n    {\n").expect("JSON begins");
    let (inside, _) = after.split_once("\n    }\n").expect("JSON ends");
    serde_json::from_str(&format!("{{{inside}}}")).unwrap()
}

/// Whether `got` is what is shown; a text that ends in `…` is shown in part.
fn is_shown(got: &Value, shown: &Value) -> bool {
    match (got, shown) {
        (Value::Object(got), Value::Object(shown)) => {
            got.keys().eq(shown.keys())
                && got
                    .values()
                    .zip(shown.values())
                    .all(|(a, b)| is_shown(a, b))
        }
        (Value::Array(got), Value::Array(shown)) => {
            got.len() == shown.len() && got.iter().zip(shown).all(|(a, b)| is_shown(a, b))
        }
        (Value::String(got), Value::String(shown)) => match shown.strip_suffix('…') {
            Some(begin) => got.starts_with(begin),
            None => got == shown,
        },
        _ => got == shown,
    }
}

#[test]
fn a_client_gets_what_the_topics_show() {
    let mut client = crate::support::stdio::Stdio::start(Program::new(["--demo"]));
    let mut run = |arguments: Value| {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
                          "io.modelcontextprotocol/clientCapabilities": {}});
        let params = json!({"name": "fabric_run_pattern", "arguments": arguments, "_meta": meta});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        client.send_raw(format!("{call}\n").as_bytes());
        client.recv()["result"].take()
    };
    let mut good = run(
        json!({"pattern_name": "write_commit_message", "input_text": "Fix a typo", "max_chars": 40}),
    );
    let mut bad = run(json!({"pattern_name": "sumarize", "input_text": "x"}));
    // Ids differ between runs.
    let (result, error) = (json_of("results"), json_of("errors"));
    good["structuredContent"]["run_id"] = result["run_id"].clone();
    bad["_meta"]["error"]["request_id"] = error["request_id"].clone();
    assert!(is_shown(&good["structuredContent"], &result), "{good}");
    assert!(is_shown(&bad["_meta"]["error"], &error), "{bad}");
    let found = (&good["_meta"]["schema_version"], &bad["isError"]);
    assert_eq!(found, (&json!(1), &json!(true)));
    let text = topic("results");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("schema_version, which is 1."), "{text}");
}

#[test]
fn nginx_and_caddy_take_their_lines() {
    let folder = TempFolder::new("proxies");
    let help = topic("proxy");
    let block = |begin: &str| {
        let (_, after) = help.split_once(&format!("\n    {begin}")).unwrap();
        let (inside, _) = after.split_once("\n    }\n\n").unwrap();
        format!("{begin}{inside}\n}}\n")
    };
    // There are no certificates here, and the port must not need privileges.
    let server = block("server {").replace("listen 443 ssl", "listen 127.0.0.1:8443");
    let server = server.lines().filter(|line| !line.contains(" ssl_"));
    let one = server.collect::<Vec<_>>().join("\n");
    let many = block("upstream ") + &one.replace("127.0.0.1:8000", "fabric_mcp");
    let path = folder.0.display();
    let nginx = |http: &str| {
        let log = format!("pid {path}/pid;\nerror_log {path}/error.log;");
        format!("{log}\nevents {{}}\nhttp {{\naccess_log off;\n{http}\n}}\n")
    };
    let single = block("mcp.example.com {");
    let caddy = ["validate", "--adapter", "caddyfile", "--config"];
    for (program, args, text, said) in [
        ("nginx", &["-t", "-c"][..], nginx(&one), "syntax is ok"),
        ("nginx", &["-t", "-c"], nginx(&many), "syntax is ok"),
        ("caddy", &caddy, single, "Valid configuration"),
    ] {
        let file = folder.write("conf", text);
        let run = |program: &str| Command::new(program).args(args).arg(&file).output();
        // Without root, nginx cannot write its folders, and is in no folder of PATH.
        match run(program).or_else(|_| run(&format!("/usr/sbin/{program}"))) {
            Ok(output) => {
                let all = [output.stdout, output.stderr].concat();
                contains(String::from_utf8_lossy(&all).into_owned(), [said]);
            }
            Err(_) => eprintln!("skipped: {program} is not on this machine"),
        }
    }
}

#[test]
fn the_readme_and_the_help_list_the_tools() {
    let catalogue = Program::new(["--list-tools"]).run(DEADLINE).stdout;
    let tools = catalogue.lines();
    let tools: BTreeSet<&str> = tools.filter(|line| line.starts_with("fabric_")).collect();
    let (readme, help) = (readme(), topic("tools"));
    let rows = readme.lines();
    let rows = rows.filter_map(|line| line.strip_prefix("| `fabric_")?.split_once('`'));
    let rows: Vec<String> = rows.map(|(name, _)| format!("fabric_{name}")).collect();
    let terms = help.lines().filter(|line| line.starts_with("  fabric_"));
    let found = rows.iter().map(String::as_str).collect::<BTreeSet<_>>();
    assert_eq!(found, tools, "rows of README.md, and the tools");
    let terms: BTreeSet<_> = terms.map(str::trim).collect();
    assert_eq!(terms, tools, "src/cli/topics/tools.txt, and the tools");
    let revisions = format!("from {} to {}.", Era::ALL[0].name(), Era::NEWEST.name());
    assert!(readme.contains(&revisions), "README.md, {revisions}");
    let texts = readme + &help + &sources();
    let mut words = texts.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    let is_gone = |word: &&str| {
        let mut verbs = ["list_", "get_", "run_", "cancel_"].into_iter();
        let rest = word.strip_prefix("fabric_").unwrap_or_default();
        verbs.any(|verb| rest.starts_with(verb)) && !tools.contains(word)
    };
    assert_eq!(words.find(is_gone), None, "no tool of that name");
}

#[test]
fn quoted_messages_are_ours() {
    // A literal that continues on the next line is one text.
    let sources = sources().replace("\r\n", "\n");
    let parts = sources.split("\\\n").map(str::trim_start);
    let joined: String = parts.collect();
    let help = topic("problems");
    // The rows before come from the table of the sources themselves.
    let (_, by_hand) = help.split_once("The demo's run failed").unwrap();
    let rows = by_hand.lines().filter_map(|line| {
        line.strip_prefix("  ")
            .filter(|term| !term.starts_with(' '))
    });
    let messages: Vec<&str> = rows.flat_map(|term| term.split(" … ")).collect();
    assert!(messages.len() > 15, "{help}");
    let all = "no patterns|no models|not speak TLS|authority's certificate|with a web page";
    for usual in all.split('|') {
        assert!(help.contains(usual), "{usual}");
    }
    let mut messages = messages.into_iter();
    let missing = messages.find(|message| !joined.contains(message));
    assert_eq!(missing, None, "no source has this");
}
