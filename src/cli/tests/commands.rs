//! Which command a line asks for, and which settings a client gets when it is set up.

use super::*;
use crate::clients::{CLIENTS, Launch};

#[test]
fn commands() {
    for case in [
        "--generate=man => Generate(\"man\", [], None)",
        "--generate systemd-unit /usr/bin/x => Generate(\"systemd-unit\", [\"/usr/bin/x\"], None)",
        "--generate compose x.env => Generate(\"compose\", [\"x.env\"], None)",
        "--generate client-config => Generate(\"client-config\", [], None)",
    ] {
        let (args, expected) = case.split_once(" => ").unwrap();
        assert_eq!(command(args), expected, "{args}");
    }
    let removed = command("--uninstall jetbrains");
    let part = "launch: None, url: None, offers: true, history: None, yes: false })";
    assert!(
        removed.starts_with("Install(")
            && removed.contains("\"jetbrains\"")
            && removed.ends_with(part),
        "{removed}"
    );
    for (args, text) in [
        ("--help", "--max-runs-per-caller"),
        ("-h", "More: --help, or"),
        ("-h network", "Serving a network\\n\\n"),
        ("--help install", "after asking; --help"),
        ("-hV --check --port x", "More: --help, or"),
    ] {
        let help = command(args);
        assert!(help.starts_with("Print(") && help.contains(text), "{help}");
    }
    for (client, part) in [
        (
            "zed --url https://H:8000/mcp",
            "https://h:8000/mcp\", is_sse: false",
        ),
        (
            "cline --url https://H/sse --transport sse",
            "https://h/sse\", is_sse: true",
        ),
        (
            "open-webui --port 9000",
            "http://127.0.0.1:9000/mcp\", is_sse: false",
        ),
    ] {
        let found = command(&format!("--generate client-config {client}"));
        assert!(found.contains(part), "{found}");
    }
    let connects = command("--install claude-desktop --url https://H/mcp");
    assert!(connects.contains("offers: false"), "{connects}");
    let desktop = command("--generate client-config claude-desktop --url http://[::1]:8000/mcp/");
    assert!(
        desktop.contains(
            "args: [\"--connect\", \"http://[::1]:8000/mcp\"], env: [(\"FABRIC_MCP_AUTH_TOKEN\", None)]"
        ),
        "{desktop}"
    );
    let codex = command("--generate client-command codex --demo");
    assert!(codex.contains("args: [\"--demo\"], env: []"), "{codex}");
    for row in [
        "--connect https://X/mcp --check --log-level debug|There(Check, Connect {|url: \"https://x/mcp\"",
        "--connect https://X/mcp --call x a=b --json|There(Call(\"x\", [\"a=b\"]), |json: true",
        "--list-tools --port x|ListTools(Config {|json: false",
        "--healthcheck --path x --host ::|Healthcheck(|host: \"::\", port: 8000",
        "--check|Here(Check, Config {|json: false",
        "--json --demo --check|Here(Check, Config {|json: true",
        "--call x {} --json|Here(Call(\"x\", [\"{}\"]), Config {|json: true",
    ] {
        let parts: Vec<_> = row.split('|').collect();
        let found = command(parts[0]);
        let is_so = found.starts_with(parts[1]) && found.contains(parts[2]);
        assert!(is_so, "{row}: {found}");
    }
}

/// What `--install` would have a client start.
fn launched(args: &str, vars: Vars<'_>) -> (Vec<String>, Vec<(String, Option<String>)>) {
    started(&format!("--install cursor {args}"), vars)
}

/// What a client would start after this command.
fn started(args: &str, vars: Vars<'_>) -> (Vec<String>, Vec<(String, Option<String>)>) {
    let launch = match parse_with(args, vars) {
        Ok(Command::Install(asked)) => asked.launch,
        Ok(Command::Generate("client-config", _, Some((_, launch)))) => Some(launch),
        other => panic!("{args} {vars:?}: {other:?}"),
    };
    match launch {
        Some(Launch::Program { args, env }) => (args, env),
        other => panic!("{args} {vars:?}: {other:?}"),
    }
}

#[test]
fn a_client_is_given_every_setting_but_secrets_and_those_of_http() {
    let (args, env) = launched(
        "--max-runs 3 --allow-pattern a --allow-pattern b --fabric-url https://F/ --idle-timeout 9 --idle-timeout 8",
        &[
            ("FABRIC_MCP_DENY_PATTERN", "c, d"),
            ("FABRIC_MCP_LOG_LEVEL", "Debug"),
            ("FABRIC_API_KEY", "hunter2"),
            ("FABRIC_MCP_AUTH_TOKEN", "hunter2-hunter2-hunter2"),
            ("SSL_CERT_FILE", "/ca.pem"),
            // The address that this process would listen on does not matter to a client, not even if it is wrong.
            ("FABRIC_MCP_TRANSPORT", "http"),
            ("FABRIC_MCP_HOST", "0.0.0.0"),
            ("FABRIC_MCP_PORT", "x"),
            ("FABRIC_MCP_MAX_CONNECTIONS", "5"),
            ("FABRIC_MCP_OAUTH_ISSUER", "https://as.example"),
            ("FABRIC_MCP_OAUTH_RESOURCE", "https://mcp.example.com/mcp"),
            ("FABRIC_MCP_OAUTH_CLIENT_ID", "id"),
            ("FABRIC_MCP_OAUTH_CLIENT_SECRET", "s3cret-of-ours"),
        ],
    );
    let words = "--log-level Debug --idle-timeout 8 --allow-pattern a --allow-pattern b \
        --deny-pattern c --deny-pattern d --max-runs 3";
    assert_eq!(args.join(" "), words);
    let variable = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
    let expected = [
        variable("FABRIC_BASE_URL", "https://f"),
        variable("SSL_CERT_FILE", "/ca.pem"),
        ("FABRIC_API_KEY".to_owned(), None),
    ];
    assert_eq!(env, expected);
    let text = "--transport stdio --demo";
    let found = launched(text, &[("FABRIC_API_KEY", "k")]);
    assert_eq!(found, (vec!["--demo".to_owned()], Vec::new()));
    assert_eq!(launched("", &[("FABRIC_MCP_DEMO", "yes")]).0, ["--demo"]);
    let own = std::env::home_dir().unwrap().join("bin/fabric");
    let own = format!("--start-fabric={}", own.display());
    for (given, entry) in [
        ("~/bin/fabric", &*own),
        ("1", "--start-fabric"),
        ("fabric-ai", "--start-fabric=fabric-ai"),
    ] {
        let variables = [("FABRIC_MCP_START_FABRIC", given), ("FABRIC_API_KEY", "k")];
        let found = launched("", &variables);
        assert_eq!(found, (vec![entry.to_owned()], Vec::new()));
    }
    // A relative path is one from here; the client starts it elsewhere.
    let (_, env) = launched("--fabric-url https://f", &[("SSL_CERT_FILE", "ca.pem")]);
    let file = env[1].1.as_deref().unwrap();
    let is_so = file.ends_with("ca.pem") && Path::new(file).is_absolute();
    assert!(is_so, "{env:?}");
    let here = std::env::current_dir().unwrap().join("runs");
    let home = std::env::home_dir().unwrap().join("runs");
    for (given, folder) in [("runs", here), ("~/runs", home)] {
        let (args, ..) = launched(&format!("--state-dir={given}"), &[]);
        assert_eq!(args, ["--state-dir", folder.to_str().unwrap()]);
    }
    assert_eq!(env[2], variable("FABRIC_API_KEY", ""));
    // Other programs of this machine may need it.
    let expected = [
        variable("FABRIC_BASE_URL", "http://127.0.0.1:8080"),
        variable("FABRIC_API_KEY", ""),
    ];
    assert_eq!(launched("", &[("SSL_CERT_FILE", "/ca.pem")]).1, expected);
    // The configuration is to work: a wrong setting is an error here.
    let expected = "--max-runs: \"x\" is not a number from 1 to 4096; give one";
    assert_eq!(error_with("--install cursor --max-runs x", &[]), expected);
}

#[test]
fn each_client_is_answered_before_it_gives_up() {
    let given = |client: &McpClient, more: &str| {
        let line = |what| format!("{what} {} --demo {more}", client.name);
        let [installed, printed] = ["--install", "--generate client-config"]
            .map(|what| started(&line(what), &[]).0.join(" "));
        assert_eq!(installed, printed);
        installed
    };
    for client in CLIENTS.iter().filter(|client| !client.only_connects()) {
        let expected = match client.name {
            "vscode" => "--demo --answer-within 290",
            "gemini-cli" => "--demo --answer-within 590",
            "goose" => "--demo --answer-within 3590",
            "copilot-cli" => "--demo --answer-within 20",
            // As without it: 50.
            _ => "--demo",
        };
        assert_eq!(given(client, ""), expected, "{client:?}");
        let found = given(client, "--answer-within 7");
        assert_eq!(found, "--demo --answer-within 7", "{client:?}");
    }
    assert_eq!(flags::get("answer-within").default, "50");
}
