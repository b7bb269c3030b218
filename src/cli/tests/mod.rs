//! Command lines and environments, and what becomes of them: exact values and exact messages.

use super::flags::FLAGS;
use super::*;
use crate::clients;
use crate::config::Transport;
use log::Level;
use std::time::Duration;

mod commands;
mod mistakes;

type Vars<'a> = &'a [(&'a str, &'a str)];

fn parse_with(args: &str, vars: Vars<'_>) -> Result<Command, String> {
    let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
    let read = |path: &Path| match path.to_str() {
        Some("token") => Ok("0123456789abcdef\n".to_owned()),
        Some("other-token") => Ok("a-short-one".to_owned()),
        Some("prices") => Ok("small 1 2\n".to_owned()),
        Some("empty") => Ok(" \n".to_owned()),
        Some("binary") => Ok("secr\u{1}et".to_owned()),
        _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such file")),
    };
    let named = vars.iter().filter(|(_, value)| !value.is_empty());
    let named = named.map(|(name, value)| (name.to_string(), OsString::from(value)));
    parse(args, &named.collect::<Vec<_>>(), &read)
}

fn config_with(args: &str, vars: Vars<'_>) -> Config {
    match parse_with(args, vars) {
        Ok(Command::Here(Task::Serve, config)) => *config,
        other => panic!("{args} {vars:?}: {other:?}"),
    }
}

fn error_with(args: &str, vars: Vars<'_>) -> String {
    parse_with(args, vars)
        .map(|command| format!("{command:?}"))
        .expect_err(args)
}

fn command(args: &str) -> String {
    format!("{:?}", parse_with(args, &[]).unwrap())
}

#[test]
fn each_default_in_the_table_is_the_true_one() {
    let defaults = format!("{:?}", config_with("", &[]));
    for flag in FLAGS.iter().filter(|flag| !flag.default.is_empty()) {
        let given = config_with(&format!("--{} {}", flag.long, flag.default_value()), &[]);
        assert_eq!(format!("{given:?}"), defaults, "--{}", flag.long);
    }
    for (transport, path, max_runs) in [
        ("Stdio", "/mcp", 16),
        ("Http", "/mcp", 512),
        ("Sse", "/sse", 512),
    ] {
        let blank = [("FABRIC_MCP_PATH", " "), ("FABRIC_MCP_MAX_RUNS", " ")];
        let config = config_with(&format!("--transport {transport}"), &blank);
        let found = format!("{:?} {} {}", config.transport, config.path, config.max_runs);
        assert_eq!(found, format!("{transport} {path} {max_runs}"));
    }
    let within = |flags: &str| config_with(flags, &[]).runs.answer_within.as_secs();
    let found = ["run_pattern", "get_run"].map(|tool| within(&format!("--tool fabric_{tool}")));
    assert_eq!(found, [0, 50], "nobody could ask for the run later");
    assert_eq!(flags::get("path").default, "/mcp, on sse /sse");
    assert_eq!(flags::get("max-runs").default, "16, on http and sse 512");
}

#[test]
fn each_choice_in_the_table_is_taken() {
    for flag in FLAGS {
        for choice in flag.values().iter().filter(|choice| {
            !["skills", "skill", "plugin", "client-command", "token"].contains(*choice)
        }) {
            parse_with(&format!("--{} {choice}", flag.long), &[]).unwrap();
        }
    }
    for client in clients::names() {
        parse_with(&format!("--generate client-config {client}"), &[]).unwrap();
        parse_with(&format!("--generate client-command {client}"), &[]).unwrap();
    }
}

/// One good value other than the default for each setting: its flag and its variable must do the same.
#[test]
fn flags_and_variables_say_the_same_and_flags_win() {
    let defaults = format!("{:?}", config_with("", &[]));
    for flag in FLAGS {
        let Some(variable) = flag.env() else { continue };
        // These need one another.
        let together = [
            "oauth-issuer",
            "oauth-resource",
            "allow-model",
            "default-vendor",
        ];
        if together.contains(&flag.long) {
            continue;
        }
        let (value, other) = match flag.placeholder {
            "" => ("true", "false"),
            "[=PROGRAM]" => ("fabric", "fabric-ai"),
            "TRANSPORT" => ("sse", "http"),
            "ADDRESS" if flag.long == "trusted-proxy" => ("10.0.0.1", "::1"),
            "ADDRESS" => ("localhost", "::1"),
            "FORMAT" => ("JSON", "logfmt"),
            "PORT" => ("0", "65535"),
            "PATH" => ("/", "/x/y"),
            "LEVEL" => ("Warn", "DEBUG"),
            "URL" => ("http://fabric", "http://other"),
            "SECONDS" => ("0.25", "604800"),
            "TOOL" => ("fabric_get_run", "fabric_cancel_run"),
            "WHICH" => ("none", "all"),
            "PATTERN=MODEL" => ("summarize=V|m", "x=y"),
            "LANGUAGE" => ("de", "fr"),
            "NAME" => ("create_coding_feature", "other"),
            "COUNT" => ("1", "2"),
            "MIB" => ("32", "65536"),
            "HOST" => ("mcp.example.com:8443", "mcp"),
            "ORIGIN" => ("https://app.example.com", "http://x"),
            "FILE" => ("token", "other-token"),
            "DIR" => ("runs", "/var/lib/runs"),
            other => panic!("a value for {other}"),
        };
        let switch = flag.placeholder.is_empty();
        let args = if switch {
            format!("--{}", flag.long)
        } else {
            format!("--{}={value}", flag.long)
        };
        let by_flag = format!("{:?}", config_with(&args, &[]));
        assert_ne!(by_flag, defaults, "--{}", flag.long);
        let found = format!("{:?}", config_with("", &[(&variable, value)]));
        assert_eq!(found, by_flag, "{variable}");
        let found = format!("{:?}", config_with("", &[(&variable, "")]));
        assert_eq!(found, defaults, "{variable}");
        let found = format!("{:?}", config_with(&args, &[(&variable, other)]));
        assert_eq!(found, by_flag, "{variable}");
        let found = format!("{:?}", config_with("", &[(&variable, other)]));
        assert_ne!(found, by_flag, "{variable}");
        if !switch && !flag.repeats {
            let twice = config_with(&format!("--{}={other} --{0}={value}", flag.long), &[]);
            assert_eq!(format!("{twice:?}"), by_flag, "--{}", flag.long);
        }
    }
}

#[test]
fn values_become_what_they_mean() {
    let c = config_with(
        "--mcp-path /x --allow-pattern a --allow-pattern b --transport HTTP --host [::1] --connect-timeout 1.5",
        &[
            ("FABRIC_MCP_DENY_PATTERN", " c , ,d"),
            (
                "FABRIC_MCP_ALLOWED_ORIGIN",
                "HTTPS://App.Example.com:443/,http://x:80,vscode-webview://abc,http://[::1]:3000",
            ),
            ("FABRIC_MCP_ALLOWED_HOST", "MCP.example.com,::1,[::1]:8443"),
            ("FABRIC_API_KEY", "k-1"),
            ("FABRIC_MCP_AUTH_TOKEN_FILE", "token"),
        ],
    );
    let found = (c.path.as_str(), c.host.as_str(), c.transport);
    assert_eq!(found, ("/x", "::1", Transport::Http));
    let expected = (vec!["a".into(), "b".into()], vec!["c".into(), "d".into()]);
    assert_eq!((c.policy.allowed, c.policy.denied), expected);
    let expected = [
        "https://app.example.com",
        "http://x",
        "vscode-webview://abc",
        "http://[::1]:3000",
    ];
    assert_eq!(c.http.allowed_origins, expected);
    let hosts = c.http.allowed_hosts.iter();
    let hosts: Vec<_> = hosts.map(ToString::to_string).collect();
    assert_eq!(hosts, ["mcp.example.com", "[::1]", "[::1]:8443"]);
    assert_eq!(c.fabric.api_key.unwrap().expose(), "k-1");
    assert_eq!(c.fabric.connect_timeout, Duration::from_millis(1500));
    assert_eq!(c.http.token.unwrap().expose(), "0123456789abcdef");
    assert!(c.warnings.is_empty());
    for (text, level) in [
        ("debug", Some(Level::Debug)),
        ("INFO", Some(Level::Info)),
        ("Warning", Some(Level::Warn)),
        ("warn", Some(Level::Warn)),
        ("eRRor", Some(Level::Error)),
        ("critical", None),
    ] {
        let found = config_with(&format!("--log-level {text}"), &[]).log_level;
        assert_eq!(found, level);
    }
    for (text, on) in [
        ("1", true),
        ("YES", true),
        ("True", true),
        ("0", false),
        ("no", false),
        ("false", false),
    ] {
        assert_eq!(config_with("", &[("FABRIC_MCP_DEMO", text)]).demo, on);
    }
}

/// A variable and its value, and what is said about it after its name; `HEADER` stands for what a header cannot carry.
const WRONG_VARIABLES: &str = r#"
FABRIC_MCP_PORT=x => "x" is not a number from 0 to 65535; give one
FABRIC_MCP_DEMO=y => "y" is neither yes nor no; give true or false
FABRIC_MCP_ALLOW_PATTERN=a,b\c => "b\\c" is not a pattern's name;
    give 1 to 128 characters without / and \
FABRIC_BASE_URL=http://joe:hunter2@fabric => the URL holds a user name or password, which would end up in logs;
    take the part before the @ out: a key or token has a variable of its own (FABRIC_API_KEY, FABRIC_MCP_AUTH_TOKEN)
FABRIC_API_KEY=hunter2 x => HEADER
FABRIC_API_KEY="hunter2" => the value is in quotes, which docker keeps; leave them out
FABRIC_MCP_AUTH_TOKEN=hunter2é => HEADER
FABRIC_MCP_AUTH_TOKEN_FILE=binary => HEADER
FABRIC_MCP_AUTH_TOKEN_FILE=empty => "empty" is empty; put the token into it
FABRIC_MCP_AUTH_TOKEN_FILE=nowhere => no such file: "nowhere";
    give a file that holds the token
"#;

#[test]
fn wrong_variables_are_reported_by_name() {
    let header = "the value is longer than 4096 bytes, or holds a space, a line break or another \
        character that cannot be sent in a header; copy it again, only visible ASCII characters";
    let text = WRONG_VARIABLES.replace("\n    ", " ");
    let text = text.replace("HEADER", header);
    for case in text.trim().lines() {
        let (variable, message) = case.split_once(" => ").expect("a variable and a message");
        let (name, value) = variable.split_once('=').expect("a name and a value");
        let error = error_with("", &[(name, value)]);
        assert_eq!(error, format!("{name}: {message}"));
        assert!(!error.contains("hunter2") && !error.contains("joe"));
    }
    let broken = [("FABRIC_API_KEY", "hunter2\r\nX: y")];
    assert_eq!(error_with("", &broken), format!("FABRIC_API_KEY: {header}"));
    let found = error_with("", &[("FABRIC_API_KEY", &"x".repeat(4097))]);
    assert_eq!(found, format!("FABRIC_API_KEY: {header}"));
    let both = [
        ("FABRIC_MCP_AUTH_TOKEN_FILE", "token"),
        ("FABRIC_MCP_AUTH_TOKEN", "hunter2"),
    ];
    let expected =
        "FABRIC_MCP_AUTH_TOKEN and FABRIC_MCP_AUTH_TOKEN_FILE are both set; unset one of them";
    assert_eq!(error_with("", &both), expected);
    let expected = "FABRIC_MCP_AUTH_TOKEN and --auth-token-file are both set; unset one of them";
    assert_eq!(error_with("--auth-token-file token", &both[1..]), expected);
}

#[test]
fn a_long_or_strange_value_is_repeated_in_part() {
    let error = error_with(&format!("--host {}/\u{1b}", "x".repeat(39)), &[]);
    let start = format!("--host: \"{}/…\" is not", "x".repeat(39));
    assert!(error.starts_with(&start), "{error}");
    let error = error_with("--host \u{1b}[2J", &[]);
    let is_so = error.starts_with("--host: \"\\u{1b}[2J\" is not");
    assert!(is_so, "{error}");
}

#[test]
#[cfg(unix)]
fn values_that_are_not_utf8_are_refused() {
    use std::os::unix::ffi::OsStringExt;
    let bad = || OsString::from_vec(b"caf\xe9".to_vec());
    let none = |_: &Path| Err(io::Error::other("none"));
    let error = parse(["--host".into(), bad()], &[], &none).unwrap_err();
    let expected = "--host: the value is not UTF-8; write it in UTF-8";
    assert_eq!(error, expected);
    let all = "FABRIC_BASE_URL FABRIC_API_KEY FABRIC_MCP_ALLOWED_HOST FABRIC_MCP_DEMO";
    for name in all.split(' ') {
        let error = parse([], &[(name.to_owned(), bad())], &none).unwrap_err();
        let expected = format!("{name}: the value is not UTF-8; write it in UTF-8");
        assert_eq!(error, expected);
    }
    let error = parse([bad()], &[], &none).unwrap_err();
    let start = "\"caf\u{fffd}\": the value is not UTF-8; ";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn where_other_machines_come_in_a_token_is_needed() {
    let open = "--allow-unauthenticated";
    for row in [
        "--host|can be reached from other machines, and there is no token|0.0.0.0 :: 192.168.0.1 example.com ::ffff:10.0.0.1",
        "--allowed-host|leads other machines here, and there is no token|mcp.example.com mcp.example.com:8443 [2001:db8::1]:80",
    ] {
        let row: Vec<_> = row.split('|').collect();
        let [flag, what, hosts] = row[..] else {
            panic!("{row:?}")
        };
        let open_to = what.split(',').next().unwrap_or_default();
        let variable = format!("FABRIC_MCP{}", flag[1..].replace('-', "_").to_uppercase());
        for host in hosts.split(' ') {
            let refused = |name: &str| {
                format!(
                    "{name}: {host} {what}; give --tokens-file, set \
                     FABRIC_MCP_AUTH_TOKEN (or FABRIC_MCP_AUTH_TOKEN_FILE), or give \
                     --oauth-issuer; or --allow-unauthenticated, if a proxy in front decides who \
                     may come in"
                )
            };
            let flags = format!("--transport http {flag} {host}");
            assert_eq!(error_with(&flags, &[]), refused(flag));
            let vars = [(&*variable, host)];
            assert_eq!(error_with("--transport sse", &vars), refused(&variable));
            // On stdio nothing listens.
            config_with(&format!("{flag} {host}"), &[]);
            config_with(&flags, &[("FABRIC_MCP_AUTH_TOKEN", "0123456789abcdef")]);
            config_with(&flags, &[("FABRIC_MCP_AUTH_TOKEN_FILE", "token")]);
            assert_eq!(
                config_with(&format!("{flags} {open}"), &[]).warnings,
                [format!(
                    "{open}: {host} {open_to}, and no token is asked for: anyone who reaches this \
                     server may use it. Limits are for each address: all who come through a proxy \
                     are one caller, unless --trusted-proxy names that proxy."
                )]
            );
        }
        for host in "127.0.0.1 127.9.9.9 ::1 LocalHost ::ffff:127.0.0.1".split(' ') {
            let flags = format!("--transport http {flag} {host}");
            config_with(&flags, &[]);
            let warnings = config_with(&format!("{flags} {open}"), &[]).warnings;
            assert_eq!(warnings, [""; 0], "{host}");
        }
    }
}

#[test]
fn what_is_odd_but_not_wrong_becomes_a_warning() {
    let short = config_with("", &[("FABRIC_MCP_AUTH_TOKEN", "0123456789abcde")]);
    let wanted = [
        "FABRIC_MCP_AUTH_TOKEN: the token is a placeholder that nothing has replaced, or shorter \
         than 16 characters, so it can be guessed; put a better one there, such as \
         `openssl rand -hex 32` prints.",
    ];
    assert_eq!(short.warnings, wanted);
    assert_eq!(short.http.token.unwrap().expose(), "0123456789abcde");
    let placeholder = config_with("", &[("FABRIC_MCP_AUTH_TOKEN", "${FABRIC_MCP_AUTH_TOKEN}")]);
    assert_eq!(placeholder.warnings, wanted);
    let unknown =
        ["PROT", "API_KEY", "TOKENS", "NONSENSE"].map(|name| format!("FABRIC_MCP_{name}"));
    let unknown: Vec<(&str, &str)> = unknown.iter().map(|name| (&**name, "x")).collect();
    let wanted = [
        "FABRIC_MCP_PROT is not a variable of fabric-mcp; did you mean FABRIC_MCP_PORT?",
        "FABRIC_MCP_API_KEY is not a variable of fabric-mcp; did you mean FABRIC_API_KEY?",
        "FABRIC_MCP_TOKENS is not a variable of fabric-mcp; did you mean FABRIC_MCP_TOKENS_FILE?",
        "FABRIC_MCP_NONSENSE is not a variable of fabric-mcp; fabric-mcp --help lists them.",
    ];
    assert_eq!(config_with("", &unknown).warnings, wanted);
    for (name, meant) in [
        ("FABRIC_BASEURL", Some("FABRIC_BASE_URL")),
        ("fabric_base_url", Some("FABRIC_BASE_URL")),
        ("FABRIC_API_TOKEN", Some("FABRIC_API_KEY")),
        ("FABRIC_START_FABRIC", Some("FABRIC_MCP_START_FABRIC")),
        ("FABRIC_OUTPUT_PATH", None),
        ("FABRIC_BASE_URL", None),
    ] {
        let told = config_with("", &[(name, "http://x")]).warnings.pop();
        let expected = meant
            .map(|meant| format!("{name} is not a variable of fabric-mcp; did you mean {meant}?"));
        assert_eq!(told, expected);
    }
    let demo = config_with("--demo", &[("FABRIC_API_KEY", "k")]);
    assert_eq!(demo.fabric.api_key, None);
}

#[test]
fn bounds_are_taken_and_secrets_not_shown() {
    let name = "é".repeat(128);
    let key = "k".repeat(4096);
    let path = format!("/{}", "x".repeat(2047));
    let config = config_with(
        &format!(
            "--allow-pattern {name} --path {path} --max-runs 4096 --idle-timeout 604800 --run-timeout 0.001"
        ),
        &[("FABRIC_API_KEY", &key), ("FABRIC_MCP_AUTH_TOKEN", &key)],
    );
    let found = (config.policy.allowed.as_slice(), config.path.len());
    assert_eq!(found, ([name.clone()].as_slice(), 2048));
    assert!(!format!("{config:?}").contains("kkk"));
    assert!(error_with(&format!("--path {path}x"), &[]).contains("of at most 2048 visible"));
    assert!(
        error_with(&format!("--allow-pattern {name}é"), &[])
            .ends_with("…\" is not a pattern's name; give 1 to 128 characters without / and \\")
    );
}

#[test]
fn a_file_is_read_within_bounds() {
    let file = std::env::temp_dir().join(format!("fabric-mcp-{}-token", std::process::id()));
    for (size, fits) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        std::fs::write(&file, "x".repeat(size)).unwrap();
        let found = read_file(&file).map(|text| text.len()).ok();
        assert_eq!(found, fits.then_some(size));
    }
    std::fs::write(&file, "\u{feff}gpt-4o 1 2\n").unwrap();
    assert_eq!(read_file(&file).unwrap(), "gpt-4o 1 2\n");
    std::fs::write(&file, b"\xff").unwrap();
    let found = read_file(&file).unwrap_err().kind();
    assert_eq!(found, io::ErrorKind::Other);
    std::fs::remove_file(&file).unwrap();
    let found = read_file(&file).unwrap_err().kind();
    assert_eq!(found, io::ErrorKind::NotFound);
}

#[test]
fn settings_that_need_one_another_say_so() {
    let oauth = "--oauth-issuer https://as.example --oauth-resource https://mcp.example.com/mcp";
    let vars = [
        ("FABRIC_MCP_OAUTH_CLIENT_ID", "id"),
        ("FABRIC_MCP_OAUTH_CLIENT_SECRET", "s3cret-of-ours"),
    ];
    let config = format!("{:?}", config_with(oauth, &vars));
    let is_so = config.contains("text: \"https://as.example\"") && !config.contains("s3cret");
    assert!(is_so, "{config}");
    for (args, vars) in [(oauth, &vars[..1]), ("", &vars[1..])] {
        let expected = "OAuth needs --oauth-issuer, --oauth-resource, FABRIC_MCP_OAUTH_CLIENT_ID \
            and FABRIC_MCP_OAUTH_CLIENT_SECRET; set all four, or none of them";
        assert_eq!(error_with(args, vars), expected);
    }
    assert_eq!(
        error_with("--oauth-issuer http://as.example", &vars),
        "--oauth-issuer: the URL must begin with https://; http:// is accepted only for this \
         machine (127.0.0.1, localhost)"
    );
    for case in [
        "--allow-model a => --allow-model: --default-model must be one of the allowed models",
        "--allow-model a* --allow-model a --default-model b => give --default-model a",
        "--allow-model a* => give --default-model NAME",
        r#"--allow-model *a => --allow-model: "*a" is not the name of a model or vendor"#,
        "--default-vendor V => --default-vendor: there is no --default-model",
        r#"--allow-model a --default-model a --pattern-model x=b => --allow-model: "b", the model of x, is not allowed;"#,
        r#"--pattern-model x => --pattern-model: "x" does not say which pattern and which model; give PATTERN=MODEL or"#,
        r#"--pattern-model x=V| => --pattern-model: "" is not the name of a model or vendor"#,
        r#"--pattern-model a/b=m => --pattern-model: "a/b" is not a pattern's name"#,
        r#"--default-language de. => --default-language: "de." is not a language; give its code or name"#,
        "--transport http --trusted-proxy 127.0.0.1 => --trusted-proxy: 127.0.0.1 leads other machines here, and there is no token",
        r#"--trusted-proxy nginx => --trusted-proxy: "nginx" is not an address"#,
    ] {
        let (args, words) = case.split_once(" => ").expect("two parts");
        let error = error_with(args, &[]);
        assert!(error.contains(words), "{args}: {error}");
    }
    let said = "--allow-model a* --allow-model B --default-model A --default-vendor V";
    let config = config_with(said, &[]);
    let policy = config.policy;
    assert_eq!(policy.allowed_models.len(), 2);
    let found = [policy.default_model, policy.default_vendor];
    assert_eq!(found, ["A", "V"]);
    let models = [("FABRIC_MODEL_SUMMARIZE", "V|c")];
    let policy = config_with("--pattern-model x=a --pattern-model y=W|b", &models).policy;
    let models_of = policy.pattern_models.iter();
    let models_of: Vec<_> = models_of
        .map(|one| (&*one.pattern, &*one.vendor, &*one.model))
        .collect();
    let expected = [
        ("FABRIC_MODEL_SUMMARIZE", "V", "c"),
        ("x", "", "a"),
        ("y", "W", "b"),
    ];
    assert_eq!(models_of, expected);
    assert_eq!(
        error_with("--allow-model a --default-model a", &models),
        "--allow-model: \"c\", the model of FABRIC_MODEL_SUMMARIZE, is not allowed; allow it too, or give the pattern another"
    );
    let open = "--transport http --host 0.0.0.0";
    assert!(parse_with(&format!("{open} --tokens-file x"), &[]).is_ok());
    assert!(parse_with(&format!("{open} {oauth}"), &vars).is_ok());
}
