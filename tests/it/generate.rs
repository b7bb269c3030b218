//! `--generate`: real consumers accept its output. A consumer missing on this machine is named and skipped.
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use crate::support::DEADLINE;
use crate::support::fabric::FakeFabric;
use crate::support::folder::TempFolder;
use crate::support::http::HttpServer;
use crate::support::process::{Output, Program};
fn generated(what: &str) -> String {
    let program = Program::new(["--generate"]).flags(what);
    let finished = program.run(DEADLINE);
    finished.expect_code(0);
    assert_eq!(finished.stderr, "", "hints are for terminals");
    finished.stdout
}

/// The output of a tool about a file, and whether it accepts the file. `None` without the tool.
fn ask(tool: &str, args: &[&str], file: &std::path::Path) -> Option<(bool, String)> {
    let output = Command::new(tool)
        .args(args)
        .arg(file)
        .env("LC_ALL", "C.UTF-8")
        // The user's own may be a folder that is not there.
        .env("HOME", file.with_file_name(""))
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            Some((
                output.status.success(),
                String::from_utf8_lossy(&said).into_owned(),
            ))
        }
        Err(_) => {
            eprintln!("skipped: {tool} is not on this machine");
            None
        }
    }
}

// Linux has man-db, which knows --warnings.
#[cfg(target_os = "linux")]
#[test]
fn the_manual_page_is_clean() {
    let folder = TempFolder::new("man");
    let page = generated("man");
    assert!(page.contains("\nLists all patterns, or with"), "{page}");
    let page = folder.write("fabric-mcp.1", page);
    let output = Command::new("man")
        .args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8"])
        .arg(&page)
        .env("LC_ALL", "C.UTF-8")
        .output();
    match output {
        Ok(output) => {
            assert!(output.status.success());
            assert_eq!(String::from_utf8_lossy(&output.stderr), "");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("FABRIC_MCP_TRANSPORT"), "{text}");
        }
        Err(_) => eprintln!("skipped: man is not on this machine"),
    }
}

/// What each shell is told to print all that it completes a line with. A script with a mistake completes nothing.
const COMPLETED: [(&str, &str); 3] = [
    (
        "bash",
        "source ./script; COMP_WORDS=(fabric-mcp @LINE@); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _fabric_mcp
         printf '%s\\n' \"${COMPREPLY[@]}\"\n",
    ),
    ("fish", "source ./script; complete -C 'fabric-mcp @LINE@' | string split -f 1 \\t | string trim -c /; true\n"),
    (
        "zsh",
        r#"zmodload zsh/zpty; zpty shell zsh -f -i
           zpty -w shell "PROMPT=; autoload -U compinit; compinit -u -D; source ./script; bindkey '^I' complete-word"
           zpty -w shell 'compadd() { builtin compadd -A hits "$@"; print -l -- $hits >>hits; builtin compadd "$@" }'
           zpty -w shell 'zle-line-init() { print -n REA""DY }; zle -N zle-line-init'
           zpty -r shell out '*READY*'
           zpty -w -n shell $'fabric-mcp @LINE@\t\C-u'; zpty -w shell 'print DO""NE'
           zpty -r shell out '*DONE*'; zpty -d shell; sort -u hits
        "#,
    ),
];

#[test]
fn shells_complete_flags_values_and_files() {
    for (shell, script) in COMPLETED {
        for (line, expected) in [
            ("--transp", "--transport"),
            ("--transport s", "stdio sse"),
            ("--transport=h", "http"),
            ("--generate client-config z", "zed zoo-code"),
            ("--install cl", "claude-code claude-desktop cline"),
            ("--help ne", "network"),
            ("--help problems no-m", "no-models"),
            ("--start-fabric=to", "tokens"),
            ("--generate skill ru", "runs"),
            ("--demo --generate=plugin ru", "runs"),
            ("--tokens-file to", "tokens"),
            ("--auth-token-file to", "tokens"),
            ("--state-dir ru", "runs"),
            ("--patterns-dir ru", "runs"),
            ("--generate token bob r", "read run"),
            ("--generate=token bob r", "read run"),
            ("--call fabric_list_c", "fabric_list_contexts"),
        ] {
            let folder = TempFolder::new(shell);
            for file in ["tokens", "runs/1"] {
                folder.write(file, "");
            }
            folder.write("script", generated(&format!("complete-{shell}")));
            // Bash takes = for a word.
            let equals = if shell == "bash" { " = " } else { "=" };
            let script = script.replace("@LINE@", &line.replace('=', equals));
            let file = folder.write("ask", format!("cd '{}'\n{script}", folder.text()));
            if let Some((good, said)) = ask(shell, &[], &file) {
                let words = said.split_whitespace();
                let words = words.map(|word| word.trim_end_matches('=').rsplit('=').next());
                let words = BTreeSet::from_iter(words.flatten());
                let expected = expected.split(' ').collect();
                assert!(good && words == expected, "{shell}: {line}: {said}");
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn systemd_accepts_the_units_and_counts_them_among_the_safe() {
    for (what, name) in [
        ("systemd-unit", "fabric-mcp.service"),
        ("systemd-template", "fabric-mcp@8001.service"),
    ] {
        let folder = TempFolder::new(what);
        let unit = generated(what);
        let file = folder.write(name, &unit);
        if let Some((good, said)) = ask("systemd-analyze", &["verify", "--man=no"], &file) {
            // The output may also contain complaints about other units of the machine.
            let ours = said.lines();
            let ours: Vec<&str> = ours.filter(|line| line.contains("fabric-mcp")).collect();
            assert!(good || ours.is_empty(), "{said}");
            assert_eq!(ours, Vec::<&str>::new(), "{unit}");
        }
        // The threshold is in tenths: higher exposure is an error.
        let safe = ["security", "--offline=true", "--threshold=12"];
        if let Some((good, said)) = ask("systemd-analyze", &safe, &file) {
            // Versions before 250 cannot do that for a file.
            assert!(good || said.contains("unrecognized option"), "{said}");
        }
    }
}

/// The arguments in `ExecStart=`, with the tokens in `folder`.
fn flags_of_the_unit(folder: &TempFolder) -> String {
    let unit = generated("systemd-unit /usr/bin/fabric-mcp");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/fabric-mcp "))
        .expect("a program");
    line.replace("/etc/fabric-mcp", folder.text())
        .replace("%S", folder.text())
}

#[test]
fn nothing_in_the_unit_s_environment_file_turns_the_token_off() {
    let folder = TempFolder::new("unit-token");
    folder.write("tokens", "alice run a-token-of-thirty-two-characters\n");
    let example = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/.env.example")).unwrap();
    let names: Vec<&str> = example
        .lines()
        .filter_map(|line| Some(line.strip_prefix('#')?.split_once('=')?.0))
        .filter(|name| !name.contains(' '))
        .collect();
    for name in ["FABRIC_MCP_AUTH_TOKEN_FILE", "FABRIC_MCP_TRANSPORT"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let fabric = FakeFabric::start();
    let empty: Vec<(&str, &str)> = names.iter().map(|name| (*name, "")).collect();
    let rows: [&[(&str, &str)]; 3] = [
        // Unchanged: comments only.
        &[],
        &empty,
        &[
            ("FABRIC_MCP_TRANSPORT", "stdio"),
            ("FABRIC_MCP_TOKENS_FILE", "/nowhere"),
            ("FABRIC_MCP_ALLOW_UNAUTHENTICATED", "true"),
            ("FABRIC_MCP_ALLOWED_HOST", "mcp.example.com"),
            ("FABRIC_MCP_ALLOWED_ORIGIN", "https://app.example.com"),
        ],
    ];
    for row in rows {
        let mut program = Program::with(&fabric);
        for (name, value) in row {
            program = program.env(name, value);
        }
        // This test has its own Fabric, and uses a free port.
        let flags = format!("--fabric-url {} --port 0", fabric.url());
        let program = program.flags(&flags).flags(&flags_of_the_unit(&folder));
        let server = HttpServer::listening(program);
        let log = server.process.stderr();
        let started = "started on http transport at http://127.0.0.1:";
        assert!(log.contains(started), "{row:?}");
        assert!(log.contains("/mcp auth=token"), "{row:?}: {log}");
        assert_eq!(server.get("/metrics", &[]).status, 401, "{row:?}");
        let bearer = ("Authorization", "Bearer a-token-of-thirty-two-characters");
        assert_eq!(server.get("/metrics", &[bearer]).status, 200, "{row:?}");
    }
}

#[test]
fn kubernetes_gets_the_image_a_token_and_time_for_the_longest_run() {
    let [one, two] = [(); 2].map(|()| generated("kubernetes a/b@sha256:\"0\""));
    let differing = one.lines().zip(two.lines()).filter(|(a, b)| a != b);
    let differing: Vec<&str> = differing.map(|(line, _)| line.trim()).collect();
    assert!(matches!(differing[..], [token] if token.starts_with("team run fmcp_")));
    let seconds = |before: &str| {
        let rest = one.split_once(before).unwrap().1;
        let digits = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap();
        digits[..end].parse::<u32>().unwrap()
    };
    let run = Program::new(["--help"]).run(DEADLINE).stdout;
    assert!(run.contains("--run-timeout SECONDS") && run.contains("3600"));
    let drain = seconds("FABRIC_MCP_DRAIN_TIMEOUT");
    assert!(drain >= 3600 && seconds("terminationGracePeriodSeconds") > drain + seconds("sleep:"));
    assert!(one.contains("image: \"a/b@sha256:\\\"0\\\"\"\n"), "{one}");
    assert!(!one.contains('@') || one.matches('@').count() == one.matches("@sha256").count());
}

#[test]
fn the_secrets_of_compose_are_in_a_file_that_only_its_owner_reads() {
    use std::os::unix::fs::PermissionsExt;

    let folder = TempFolder::new("compose");
    let file = folder.path("a$\u{7f}@PLACE@.env");
    let name = file.to_str().unwrap();
    // What nobody reads is not made.
    for words in ["token alice run", &format!("compose {name}")] {
        let program = Program::new(["--generate"]).flags(words).after("read line");
        let finished = program.stdout(Output::Closed).run(DEADLINE);
        finished.expect_code(1);
        let words = "written: Broken pipe (os error 32)\n";
        assert!(finished.stderr.ends_with(words), "{finished:?}");
    }
    let text = generated(&format!("compose {name}"));
    let escaped = name.replace('$', "$$").replace('\u{7f}', "\\u007f");
    let part = format!("\n    env_file: \"{escaped}\"\n");
    assert!(text.contains(&part), "{text}");
    let secrets = fs::read_to_string(&file).unwrap();
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (variable, token) = secrets.trim_end().split_once('=').unwrap();
    let is_so = !text.contains(token) && !text.contains("AUTH_TOKEN");
    assert!(is_so, "{text}");
    let (fabric, ours) = text.split_once("\n  fabric-mcp:\n").unwrap();
    // What --setup asks for outlives the container, whoever its image runs as.
    let (_, home) = fabric.split_once("HOME: ").unwrap();
    let volume = format!("- fabric:{}/.config/fabric\n", home.lines().next().unwrap());
    assert!(fabric.contains(&volume), "{fabric}");
    assert!(!fabric.contains("\n    ports:") && ours.contains("- \"127.0.0.1:8000:8000\"\n"));
    let found = text.matches("_IMAGE:?").count();
    assert_eq!(found, 2, "no image by default: {text}");
    let again = Program::new(["--generate", "compose", name]).run(DEADLINE);
    again.expect_code(2).expect_stderr("give a new file in");
    assert_eq!(fs::read_to_string(&file).unwrap(), secrets);
    let server = HttpServer::start(Program::with(&FakeFabric::start()).env(variable, token));
    let bearer = format!("Bearer {token}");
    for (headers, status) in [(vec![], 401), (vec![("Authorization", &*bearer)], 200)] {
        let answer = server.connect().request("GET", "/metrics", &headers, None);
        assert_eq!(answer.status, status);
    }
}

/// In a mount namespace with an empty /proc.
#[cfg(target_os = "linux")]
#[test]
fn files_are_printed_without_proc_too() {
    let hidden = |script: &str, what: &str| {
        let script = format!("mount -t tmpfs none /proc && {script}");
        Command::new("unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", &script])
            .args([env!("CARGO_BIN_EXE_fabric-mcp"), what])
            .output()
    };
    if !hidden("true", "").is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: unshare cannot hide /proc on this machine");
        return;
    }
    // A bare name does not say where the program is.
    let bare = "PATH=${0%/*}:$PATH && exec fabric-mcp";
    for what in ["man", "sysusers"] {
        let done = hidden(&format!("{bare} --generate \"$1\""), what).unwrap();
        let is_so = done.status.success();
        assert!(is_so, "{}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(String::from_utf8(done.stdout).unwrap(), generated(what));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_at_a_path_that_no_client_can_have_is_refused() {
    use std::os::unix::ffi::OsStrExt;

    let folder = TempFolder::new("not-utf-8");
    let program = folder.0.join(std::ffi::OsStr::from_bytes(b"\xff"));
    // By another process: a test that starts one meanwhile would hand on this one's open file, and it could not be run.
    let mut copy = std::process::Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_fabric-mcp")).arg(&program);
    assert!(copy.status().unwrap().success());
    let printed = std::process::Command::new(&program)
        .args(["--generate", "client-config", "cursor"])
        .output()
        .unwrap();
    assert!(!printed.status.success() && printed.stdout.is_empty());
    let said = String::from_utf8(printed.stderr).unwrap();
    assert!(said.contains("not UTF-8; move it"), "{said}");
}
