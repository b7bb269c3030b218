//! Wrong flags, each with its exact message.

use super::*;

/// Arguments, and the message about them; a line that is indented goes on with the one before. `CLIENTS` stands for
/// the names of all clients, `PATH` for what a path may be.
const MISTAKES: &str = r#"
--prot 80 => --prot is not a flag; did you mean --port?
--PORT 80 => --PORT is not a flag; did you mean --port?
--log_level x => --log_level is not a flag; did you mean --log-level?
--verbose => --verbose is not a flag; fabric-mcp --help lists them
-p 80 => -p is not a flag; did you mean --call fabric_run_pattern pattern_name=NAME < FILE?
-y => -y is not a flag; did you mean --yes?
--call fabric_run_pattern --pattern-name a => --pattern-name is not a flag; did you mean pattern_name=…, without dashes?
-x => -x is not a flag; long flags begin with two dashes, and fabric-mcp --help lists them
--base-url http://x => --base-url is not a flag; did you mean --fabric-url URL?
help --start-fabric => "help" does not belong to a flag; did you mean --help?
--help problems no-model => --help problems: "no-model" is not a code of --check; did you mean no-models?
Instal zed => "Instal" does not belong to a flag; did you mean --install?
summarize notes.txt => "summarize" does not belong to a flag; only flags and their values are taken:
    --call fabric_run_pattern pattern_name=NAME < FILE runs a pattern, and --help lists all flags
-install cursor => -i is not a flag; did you mean --install?
-khunter2 => -k is not a flag; long flags begin with two dashes, and fabric-mcp --help lists them
--setup => --setup is not a flag; did you mean fabric --setup or fabric --updatepatterns?
--history => --history only works with --install or --state-dir; to see what was run, give --call fabric_get_run
--install cursor --name a.b => --name: "a.b" is not a name; give one of at most 64 letters, digits, - and _
--port => --port needs a value: --port PORT
--host --demo => --host needs a value: --host ADDRESS
--transport => --transport needs a value: give stdio, http or sse
--demo=yes => unexpected argument for option '--demo': "yes"; leave the value out
--json => --json only works with --check, --call, --list-tools or --usage; leave it out, or add that
--api-key hunter2 => --api-key is refused, because every user of this machine can read a command line;
    set the variable FABRIC_API_KEY instead
--auth-token=hunter2 => --auth-token is refused, because every user of this machine can read a command line;
    set the variable FABRIC_MCP_AUTH_TOKEN instead
--API_KEY=hunter2 => --API_KEY is refused, because every user of this machine can read a command line;
    set the variable FABRIC_API_KEY instead
--host http://joe:hunter2@x => --host: "…@x" is not an address or name;
    give one such as 127.0.0.1, and its port with --port
--transport streamable => --transport: "streamable" is not one of the choices; give stdio, http or sse
--port 65536 => --port: "65536" is not a number from 0 to 65535; give one
--port +1 => --port: "+1" is not a number from 0 to 65535; give one
--host= => --host: "" is not an address or name;
    give one such as 127.0.0.1, and its port with --port
--host 127.0.0.1:80 => --host: "127.0.0.1:80" is not an address or name;
    give one such as 127.0.0.1, and its port with --port
--mcp-path mcp => --path: "mcp" is not allowed; PATH
--path /a?b => --path: "/a?b" is not allowed; PATH
--path /metrics => --path: "/metrics" is not allowed; PATH
--usage => --usage: the ledger is in the state folder; give --state-dir DIR, which --install sets to SHARED
--state-dir x --usage=2026-13 => --usage: "2026-13" is not a period;
    give a month, such as 2026-07, or a first day and two dots, such as 2026-07-28..
--state-dir x --usage 2026-07-01.. 2026-07-15 => --usage: "2026-07-01.. 2026-07-15" is not a period;
    give a month, such as 2026-07, or a first day and two dots, such as 2026-07-28..
--prices x => --prices only works with --usage; leave it out, or add that
--state-dir x --usage --prices missing => --prices: no such file: "missing";
    give a file with a line MODEL INPUT OUTPUT for each model
--state-dir x --usage --prices token => --prices: "token", line 1: a line is MODEL INPUT OUTPUT,
    what a million tokens cost, such as gpt-4o 2.50 10
--state-dir %S/x => --state-dir: "%S/x" has a %, which only systemd units replace;
    give the path of the folder itself
--fabric-url localhost:8080 => --fabric-url: the URL has no scheme; did you mean http://localhost:8080 or https://localhost:8080?
--fabric-url= => --fabric-url: the URL must begin with http:// or https://, as in
    http://127.0.0.1:8080
--start-fabric --fabric-url http://f => --start-fabric: it cannot be combined with --fabric-url;
    leave one of them out, or unset it if it is a variable
--demo --fabric-url http://f => --demo: it cannot be combined with --fabric-url;
    leave one of them out, or unset it if it is a variable
--start-fabric= => --start-fabric: "" is not a program; give its path
--start-fabric /bin/fabric => --start-fabric takes its value after =: did you mean --start-fabric=/bin/fabric?
--run-timeout 0 => --run-timeout: "0" is not a time; give 0.001 to 604800 seconds, such as 30 or 0.5
--keep-runs 1e3 => --keep-runs: "1e3" is not a time;
    give 0 or 0.001 to 7776000 seconds, such as 30 or 0.5
--max-runs 0 => --max-runs: "0" is not a number from 1 to 4096; give one
--allow-pattern a/b => --allow-pattern: "a/b" is not a pattern's name;
    give 1 to 128 characters without / and \
--allowed-host https://x => --allowed-host: "https://x" is not a host;
    give something like mcp.example.com or mcp.example.com:8443, without scheme or wildcard
--allowed-host x:0 => --allowed-host: "x:0" is not a host;
    give something like mcp.example.com or mcp.example.com:8443, without scheme or wildcard
--allowed-origin https://x/y => --allowed-origin: "https://x/y" is not an origin;
    give scheme and host without wildcards, such as https://app.example.com
--allowed-origin * => --allowed-origin: "*" is not an origin;
    give scheme and host without wildcards, such as https://app.example.com
--generate pdf => --generate: "pdf" is unknown; give one of GENERATED
--generate client-confg => --generate: "client-confg" is unknown; did you mean client-config?
--generate client-config zeb => --generate client-config: "zeb" is not a known client;
    did you mean zed?
--generate client-command => --generate client-command: "" is not a known client; give one of CLIENTS
--install emacs => --install: "emacs" is not a known client; give one of CLIENTS
--install zed --uninstall zed => --install and --uninstall cannot be combined: run one after another
--install zed --install warp => --install and --install cannot be combined: run one after another
--install zed --url https://x/mcp --patterns-dir p => --patterns-dir cannot be used with --url, which leads to a server with its own settings;
    leave it out here
--check-tokens a b => "b" does not belong to a flag; only flags and their values are taken:
    --call fabric_run_pattern pattern_name=NAME < FILE runs a pattern, and --help lists all flags
--install zed --transport http --tokens-file t => --transport is for a server over HTTP,
    but the client starts one on stdio; leave it out, or give --url
--install zed warp => "warp" does not belong to a flag; give one client at a time
--yes => --yes only works with --install or --uninstall; leave it out, or add that
--generate skill x --all => --all only works with --generate skills; leave it out, or add that
--url http://x/mcp => --url only works with --install, --uninstall, --generate client-config or --generate client-command;
    for the address of Fabric, give --fabric-url URL
--install zed --url https://x => --url: the URL has no path;
    add that of the endpoint, as in https://x/mcp
--install zed --url mcp.example.com/mcp => --url: the URL has no scheme;
    did you mean http://mcp.example.com/mcp or https://mcp.example.com/mcp?
--install zed --url http://joe:hunter2@x/mcp => --url: the URL holds a user name or password, which would end up in logs;
    take the part before the @ out: a key or token has a variable of its own (FABRIC_API_KEY, FABRIC_MCP_AUTH_TOKEN)
--install codex --transport sse --url https://x/sse => --transport sse: codex does not connect over HTTP+SSE;
    start the server with --transport http, and give --transport http and its /mcp as --url here
--install cursor --url http://x/mcp => --url: the URL must begin with https://;
    http:// is accepted only for this machine (127.0.0.1, localhost)
--install claude-desktop --transport sse --url https://x/sse => --transport sse: claude-desktop does not connect over HTTP+SSE;
    start the server with --transport http, and give --transport http and its /mcp as --url here
--connect https://x/mcp --tokens-file t => --tokens-file cannot be used with --connect, which leads to a server with its own settings;
    leave it out here
--connect https://x/mcp --install zed => --install cannot be used with --connect, which leads to a server with its own settings;
    leave it out here
--help netwrk => --help: "netwrk" is not a topic; did you mean network?
--help=x => --help: "x" is not a topic; give one of clients, call, tools, streaming, results, errors,
    prompts, problems, fabric, patterns, runs, keeping, network, access, oauth, proxy, service, security, limits, logs, metrics, usage
"#;

#[test]
fn wrong_flags_are_reported_in_one_line() {
    let text = MISTAKES.replace("\n    ", " ");
    let text = text.replace("CLIENTS", &clients::names().join(", "));
    let text = text.replace("GENERATED", &flags::get("generate").values().join(", "));
    let folder = clients::install::shared_folder().unwrap_or_default();
    let text = text.replace("SHARED", &folder);
    let path = "; give a path that begins with /, such as /mcp, of at most 2048 visible ASCII \
        characters without ? # \" < > \\, and none of /healthz, /readyz, /metrics";
    let text = text.replace("; PATH", path);
    for case in text.trim().lines() {
        let (args, message) = case.split_once(" => ").expect("arguments and a message");
        let error = error_with(args, &[]);
        assert_eq!(error, message, "{args}");
        assert!(!error.contains("hunter2"));
    }
    let error = error_with("--ver\u{1b}bose", &[]);
    let start = "--ver\\u{1b}bose is not a flag";
    assert!(error.starts_with(start), "{error}");
}
