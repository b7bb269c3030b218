//! The topics of `--help TOPIC` and the man page.

use super::flags::Section;
use crate::clients::CALL_LIMITS;

/// A topic of the help.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    /// The word after `--help`.
    pub(crate) name: &'static str,
    /// Its heading.
    pub(crate) title: &'static str,
    /// What it says.
    pub(crate) blocks: &'static [HelpBlock],
    /// The flags that belong to it.
    pub(crate) section: Option<Section>,
}

/// A part of a topic.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HelpBlock {
    /// A paragraph, wrapped where it is shown.
    Text(&'static str),
    /// Lines to be copied as they are, of 68 characters at most.
    Code(&'static str),
    /// Terms, of 78 characters at most, each with what it means.
    List(&'static [(&'static str, &'static str)]),
}

use HelpBlock::{Code, List, Text};

/// Every topic.
pub(crate) const TOPICS: &[Topic] = &[
    Topic {
        name: "clients",
        title: "Setting up a client",
        section: None,
        blocks: &[
            Text(
                "--install adds this server to a client's own configuration file. It shows the change and asks, keeps a \
                 backup beside the file, and touches nothing else in it, not even a comment. What you added to the entry \
                 itself, such as \"disabled\", stays. --uninstall takes the entry out again.",
            ),
            Code(
                "fabric-mcp --install cursor\nfabric-mcp --demo --install vscode --yes\nfabric-mcp --uninstall cursor",
            ),
            Text(
                "The settings it is started with go along, by flag or by variable, but no secret. Where FABRIC_API_KEY \
                 is set, and the client can refer to it, the entry does so: then start the client where the variable is \
                 set, too. Elsewhere there is an empty FABRIC_API_KEY to fill in, because clients do not pass on the \
                 variables of your shell by themselves.",
            ),
            Text("To see the clients and their files, or to print an entry and merge it by hand:"),
            Code(
                "fabric-mcp --generate client-config\nfabric-mcp --generate client-config zed\nfabric-mcp --generate \
                 client-command claude-code",
            ),
            Text(
                "For a server that runs elsewhere, give its URL. The client sends the token of FABRIC_MCP_AUTH_TOKEN, or \
                 what you put in the place of YOUR_TOKEN.",
            ),
            Code("fabric-mcp --url https://mcp.example.com/mcp --install claude-code"),
            Text(
                "Add --transport sse if that server was started with it. Where a client has no such entry, this is \
                 refused.",
            ),
        ],
    },
    Topic {
        name: "call",
        title: "Calling tools from the shell",
        section: None,
        blocks: &[
            Text(
                "--call runs any tool as a client's call would. Its arguments follow as one word of JSON; --list-tools \
                 names them. Text goes to stdout as it comes, on a terminal with its control characters \
                 replaced, and all else to stderr. The exit code is 0, 1 if the call failed, or 2 if what \
                 was typed is wrong.",
            ),
            Code(
                "git diff | fabric-mcp --call fabric_run_pattern \\\n  '{\"pattern_name\":\"write_commit_message\"}'\nfabric-mcp \
                 --call fabric_list_patterns '{\"query\":\"code\"}' --json",
            ),
            Text(
                "Without input_text, fabric_run_pattern reads what is piped in; no other tool reads stdin. Ctrl-C \
                 cancels the run at Fabric; otherwise it is waited for to its end, whatever --answer-within says. --json \
                 prints the structured result at the end, or the error.",
            ),
        ],
    },
    Topic {
        name: "fabric",
        title: "The connection to Fabric",
        section: Some(Section::Fabric),
        blocks: &[
            Text(
                "Fabric's REST API is served by fabric --serve. With --api-key KEY it asks callers for that key, which \
                 this program takes from FABRIC_API_KEY only, never from the command line.",
            ),
            Code(
                "export FABRIC_BASE_URL=http://127.0.0.1:8080 FABRIC_API_KEY=KEY\nfabric-mcp --check",
            ),
            Text(
                "--check names the fix of each problem. Scripts use its exit code, 0 or 1, and --check \
                 --json: ok, fabric (reachable, api_key, latency_ms, patterns, models, ...), mcp, and problems with \
                 code, severity, what and fix of each. These keys stay. It never starts a run that is paid for.",
            ),
            Text(
                "A run goes to Fabric once, whatever happens. No redirect is followed. For an https:// Fabric of a \
                 private authority, SSL_CERT_FILE names the certificates to trust. The static program (musl) knows \
                 the names of /etc/hosts and DNS; those that only nsswitch knows (LDAP, mDNS) need the package or a \
                 build for glibc. A proxy before Fabric must let these requests through:",
            ),
            Code(
                "POST /chat\n\
                 POST /patterns/{name}/apply\n\
                 POST /youtube/transcript\n\
                 GET  /patterns/names   /patterns/{name}   /models/names\n\
                 GET  /strategies   /config   /contexts/names   /sessions/names",
            ),
            Text(
                "The list of patterns behind prompts, resources and searches is read once for all callers and kept for \
                 --catalog-ttl, with at most 32 MiB of texts; the other tools ask Fabric with every call. Calls of \
                 fabric_list_patterns that come while one is under way share the next request. Calls of \
                 fabric_list_models wait for one that began in the last 10 s, because Fabric, asked twice at once, \
                 tells the second that there are none.",
            ),
        ],
    },
    Topic {
        name: "runs",
        title: "Patterns and runs",
        section: Some(Section::Runs),
        blocks: &[
            Text(
                "A pattern that is both allowed and denied is denied. create_coding_feature writes files on Fabric's host \
                 and is refused unless it is allowed by name.",
            ),
            Text(
                "Many clients give up on a call after a minute. A call whose run takes longer than --answer-within, or \
                 its wait_seconds, is answered with the status working, the output so far and a run_id. The run goes \
                 on, and fabric_get_run waits for the rest of it. Nothing is run twice or paid for twice. While the \
                 call waits, cancelling it stops the run; later only fabric_cancel_run does. A run that has outlived \
                 its call still counts against --max-runs.",
            ),
            Text(
                "A run is stopped by closing Fabric's answer. Whether the model stops too is up to Fabric: v1.4.470 \
                 tells OpenAI, Anthropic, and what speaks as OpenAI does. With Ollama, LM Studio, Gemini, Bedrock, \
                 Vertex, Copilot and Perplexity, the model goes on and is paid for.",
            ),
            Text(
                "How long clients wait is their own affair: the TypeScript SDK, and what is built on it, for 60 s by default, \
                 whatever progress it is sent. Of those that --install knows, this is known:",
            ),
            List(&CALL_LIMITS),
            Text(
                "--install and --generate client-config give this program an --answer-within 10 s below that. Where you \
                 change a client's own timeout, give --answer-within too. 0 is for clients that wait for ever. An MCP \
                 task (2025-11-25, 2026-07-28) has no such limit: --task-after.",
            ),
            Text(
                "Runs are kept for --keep-runs after their end, the oldest going first when there are too many, and \
                 sooner if the memory is needed. With --state-dir they are files too, which survive a restart and a \
                 crash; several processes may share the folder and answer for each other. It holds what patterns were \
                 run and their output, never the input or a secret, and only its owner can read it. A run that was cut \
                 off by the end of its process is interrupted, with the text it had.",
            ),
            Text(
                "Whoever has the token sees its runs, on stdio whoever can open the folder; over HTTP without a token, \
                 whoever has the id. A client that declares io.modelcontextprotocol/tasks (2026-07-28) is answered \
                 with a task after --task-after; one of 2025-11-25 asks for a task by task in the call. Task and run \
                 have one id.",
            ),
        ],
    },
    Topic {
        name: "network",
        title: "Serving a network",
        section: Some(Section::Http),
        blocks: &[
            Text(
                "--transport http serves many clients at http://127.0.0.1:8000/mcp, --transport sse those that know only \
                 HTTP+SSE of 2024-11-05. Beyond this machine it starts only with a token, or with \
                 --allow-unauthenticated if something in front of it decides who may come in.",
            ),
            Code(
                "(umask 077; fabric-mcp --generate token alice run >> tokens)\nfabric-mcp --transport http --host 0.0.0.0 --tokens-file tokens",
            ),
            Text(
                "Behind a proxy, name the host that clients call by --allowed-host, and have the proxy pass on the \
                 headers Host, Origin and Authorization, and not buffer answers. Web pages need --allowed-origin.",
            ),
            Code(
                "location /mcp {  # for --transport sse: /sse\n    proxy_pass http://127.0.0.1:8000;\n    \
                 proxy_set_header Host $host;\n    proxy_http_version 1.1;\n    proxy_buffering off;\n    \
                 # Longer than --run-timeout, and as large as a request may be.\n    proxy_read_timeout 3700s;\n    \
                 client_max_body_size 8m;\n}",
            ),
            Text(
                "Over HTTP, 2026-07-28 is stateless: a request carries all it needs, and closing its response cancels \
                 the run. The revisions before have sessions: there, a run goes on when the connection breaks, and \
                 only notifications/cancelled stops it.",
            ),
            Text(
                "/healthz says whether the program lives and /readyz whether Fabric answers; neither asks for the \
                 token. /metrics, for Prometheus, does. Of tokens and OAuth tells --help access, of several processes \
                 --help proxy.",
            ),
        ],
    },
    Topic {
        name: "access",
        title: "Who may call",
        section: None,
        blocks: &[
            Text(
                "Over HTTP, a caller shows who it is by the header Authorization: Bearer TOKEN. For one caller, set \
                 FABRIC_MCP_AUTH_TOKEN or --auth-token-file: that token is called default and may do everything. One \
                 shorter than 16 characters brings a warning. For a team, --tokens-file names a file with a line NAME \
                 ROLE TOKEN for each:",
            ),
            Code("fabric-mcp --generate token alice run >> /etc/fabric-mcp/tokens"),
            List(&[
                ("run, or the OAuth scope fabric:run", "May do everything."),
                (
                    "read, or the OAuth scope fabric:read",
                    "Everything but what costs money: that is answered with the error forbidden.",
                ),
                ("metrics", "May read /metrics only."),
            ]),
            Text(
                "The file is read again when it changes, within 2 s, and on SIGHUP. New tokens work, and removed ones \
                 end with their streams, though a run that has begun goes on to its end. One name may have two tokens, \
                 so that they can be changed without a gap. A mistake in the file changes nothing; the log names the \
                 line. A token with no line of its own is told 401.",
            ),
            Text(
                "Sessions belong to the caller who opened or first named them; for others they do not exist. \
                 --max-calls-per-minute and --max-runs-per-caller count for each caller. Where nobody shows a token, a \
                 caller is an address (with IPv6 its /64); behind a proxy, --trusted-proxy takes it from \
                 X-Forwarded-For.",
            ),
            Text(
                "With OAuth, this server is a resource server of your issuer, which it asks about each token (RFC \
                 7662), so that a revoked one ends too:",
            ),
            Code(
                "export FABRIC_MCP_OAUTH_CLIENT_ID=fabric-mcp\n\
                 export FABRIC_MCP_OAUTH_CLIENT_SECRET=SECRET\n\
                 fabric-mcp --transport http --allowed-host mcp.example.com \\\n\
                 \x20 --oauth-issuer https://login.example.com \\\n\
                 \x20 --oauth-resource https://mcp.example.com/mcp",
            ),
            Text(
                "A token counts if its audience is --oauth-resource and its scope has fabric:read or fabric:run. \
                 Clients find the issuer by themselves, from /.well-known/oauth-protected-resource. A good answer is \
                 kept for 60 s. If the issuer cannot be reached, its tokens are answered 503, and named tokens work \
                 on. Keycloak, Okta, Zitadel, Authentik, Ory Hydra and others have introspection. Entra ID and Google \
                 have not: they need a proxy in front that checks their tokens and has a token of its own here.",
            ),
            Text(
                "--allow-model names the models that may be run, and --default-model what runs get that name none; \
                 Fabric's own default is then never used. The log says at the start what is asked for: auth=token, \
                 auth=oauth, auth=token,oauth or auth=none.",
            ),
        ],
    },
    Topic {
        name: "proxy",
        title: "Several processes behind nginx",
        section: None,
        blocks: &[
            Text(
                "Several processes need nothing in common, and find each other's runs in a shared --state-dir. \
                 Requests of 2026-07-28 go to any of them, and so do sessions of the older revisions: an id that a \
                 process does not know, after a restart for example, is adopted. Only what belongs to a running \
                 session (cancelling, log level, the stream of a GET) needs the process it began on. For nginx, with \
                 TLS:",
            ),
            Code(
                r#"upstream fabric_mcp {
    # A session finds its process again by its id; without one
    # each request goes anywhere.
    hash $http_mcp_session_id$fabric_mcp_spread consistent;
    server 127.0.0.1:8001;
    server 127.0.0.1:8002;
    server 127.0.0.1:8003;
}
map $http_mcp_session_id $fabric_mcp_spread {
    ""      $request_id;
    default "";
}
server {
    listen 443 ssl;
    server_name mcp.example.com;
    ssl_certificate     /etc/ssl/certs/mcp.example.com.pem;
    ssl_certificate_key /etc/ssl/private/mcp.example.com.key;
    client_max_body_size 8m;

    # The second is for OAuth clients.
    location ~ ^/(mcp|\.well-known/oauth-protected-resource) {
        proxy_pass http://fabric_mcp;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host $host;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        # Text is passed on as it comes; leaving is noticed at once.
        proxy_buffering off;
        # Longer than --run-timeout.
        proxy_read_timeout 3700s;
    }
}"#,
            ),
            Text(
                "This fits the template unit of --help service. Started in another way, each process needs its own \
                 --port, --allowed-host mcp.example.com, --trusted-proxy 127.0.0.1 and the same tokens. Without any \
                 token it only starts with --allow-unauthenticated, for then nginx must decide who may come in. nginx \
                 does not send a POST to a second process once a first has begun to get it, so no run is started \
                 twice.",
            ),
        ],
    },
    Topic {
        name: "service",
        title: "Running as a service",
        section: Some(Section::Server),
        blocks: &[
            Text("A hardened unit for systemd, whose first lines say how to make the token:"),
            Code(
                "fabric-mcp --generate systemd-unit |\n  sudo tee /etc/systemd/system/fabric-mcp.service",
            ),
            Text(
                "It runs as a user that exists only while it runs, with a read-only view of the system and no \
                 privileges, and reads the tokens by its group. Other settings come from /etc/fabric-mcp/env, which \
                 cannot turn the tokens off. systemctl reload reads the tokens again. systemd knows when it is ready, \
                 and starts it again when it answers no more. For several on one machine there is a template, whose \
                 instance is the port; it reads /etc/fabric-mcp/8001.env too:",
            ),
            Code(
                "fabric-mcp --generate systemd-template |\n\
                 \x20 sudo tee /etc/systemd/system/fabric-mcp@.service\n\
                 printf '%s\\n' FABRIC_MCP_ALLOWED_HOST=mcp.example.com \\\n\
                 \x20 FABRIC_MCP_TRUSTED_PROXY=127.0.0.1 |\n\
                 \x20 sudo tee -a /etc/fabric-mcp/env\n\
                 sudo systemctl enable --now fabric-mcp@8001 fabric-mcp@8002",
            ),
            Text(
                "On SIGTERM and SIGINT it finishes what runs within --drain-timeout; a second signal ends it at once. \
                 The log goes to stderr, one line an event; input, output and secrets are never in it.",
            ),
        ],
    },
    Topic {
        name: "security",
        title: "What is guarded, and how",
        section: None,
        blocks: &[
            Text(
                "Secrets come from the environment or a file, never from the command line. They appear in no log, \
                 error or answer. Fabric's own configuration is redacted unless a value is known to be harmless.",
            ),
            Text(
                "Pattern, strategy, context and session names cannot name files, nor end in a dot or a space. What \
                 --deny-pattern denies is refused as a tool's pattern, in a chain and as a prompt, in upper or lower \
                 case and however accents are written; to read its text stays allowed.",
            ),
            Text(
                "Fabric runs {{...}} as templates on its host, and what variables and input make together with a \
                 pattern's own braces as well. So a run with variables, or with a { in its input, first reads the \
                 pattern (one GET), follows what Fabric will do, and is refused if anything else would be replaced \
                 than what stands in the pattern. With a pattern that reads files, the environment, the web or an \
                 extension, variables cannot have braces, and the input no {{. Fabric before 1.4.429 shows no patterns \
                 of a custom folder: there, those take no variables, and where one has the name of another, the wrong \
                 one is checked.",
            ),
            Text(
                "No redirect is followed, so the key goes nowhere but to FABRIC_BASE_URL. TLS trusts built-in roots, \
                 or what SSL_CERT_FILE names.",
            ),
            Text(
                "HTTP listens on 127.0.0.1. Where other machines reach it, by its address or through a proxy under a \
                 name given by --allowed-host, it starts only with tokens or OAuth, or with --allow-unauthenticated. \
                 Host and Origin are checked, which keeps web pages and DNS rebinding out; --allowed-host and \
                 --allowed-origin let more in. It has no TLS of its own: when it leaves the machine, it belongs behind \
                 a proxy that has it.",
            ),
            Text(
                "What a model is told by a pattern, or answers, is passed on as it is: treat it as you treat any text \
                 from outside.",
            ),
        ],
    },
    Topic {
        name: "limits",
        title: "Limits",
        section: None,
        blocks: &[
            Text("Each gives a clear error when it is hit."),
            List(&[
                ("One message in, line or body", "8 MiB"),
                ("input_text", "As the message"),
                ("Other strings; names", "4 KiB; 128 characters"),
                ("Variables; value of one", "256; 64 KiB"),
                (
                    "A pattern with its variables and input in place",
                    "8 MiB, if there are variables",
                ),
                ("Attachments", "64"),
                ("Output of a run; other answers of Fabric", "32 MiB; 16 MiB"),
                ("Text of a failed run that is kept", "64 KiB"),
                (
                    "Messages in a batch (2025-03-26); their answers",
                    "1000; 32 MiB",
                ),
                ("Id of a request; progress token", "1 KiB each"),
                (
                    "All requests, runs and answers in memory",
                    "256 MiB, --max-memory; large ones leave a quarter to small ones",
                ),
                (
                    "Runs at once",
                    "16 on stdio (64 more wait), 512 over HTTP; --max-runs",
                ),
                (
                    "Connections; legacy sessions",
                    "512, --max-connections; 10000",
                ),
                (
                    "Of these, held by one token or OAuth caller",
                    "Three quarters of the connections",
                ),
                ("Request line and headers; headers", "16 KiB; 100"),
                (
                    "Runs that are kept, in memory; in --state-dir",
                    "1,000 and 64 MiB; 10,000 and 1 GiB",
                ),
                (
                    "Of these, tasks of one token or OAuth caller",
                    "As many as are left to others",
                ),
                ("Times", "The flags that take seconds: --help has them"),
            ]),
            Text(
                "When all connections are in use, one makes room that has no request which was let in: it is silent, \
                 slow, or was turned away. The address that has most of these (with IPv6 its /64) loses its oldest. \
                 What runs is never cut, and /healthz is answered even when every connection serves a request.",
            ),
        ],
    },
    Topic {
        name: "logs",
        title: "Logs",
        section: None,
        blocks: &[
            Text(
                "On stderr, one line an event: time (UTC), level, where, then key=value. Each call has one (broken into several here):",
            ),
            Code(
                "2026-11-21T23:01:57.505Z INFO  [fabric_mcp::tools]\n\
                 \x20 tool=fabric_run_pattern pattern=summarize model=demo-instant\n\
                 \x20 duration_ms=3 ok=true bytes=641 request_id=c15e05fb00000002\n\
                 \x20 caller=alice",
            ),
            Text(
                "A failed one is a warning with ok=false, error= and the last part of the URN, Fabric's HTTP status= \
                 and the reason=; a refused one has the argument= in its place. At level debug, each request to Fabric \
                 and each retry has a line of its own, with method, path, status and time. The request_id is also in \
                 the error the caller gets. caller=, over HTTP, is the token's name, the OAuth subject, or the \
                 address.",
            ),
            Text(
                "A sentence with characters that could be taken for a field is quoted too, as message=. With \
                 --log-format json each line is an object with time, level, target, and the keys of its message, \
                 or message where that is a sentence. If journald reads stderr, lines have its priorities. Input, \
                 output and secrets are never logged. A client that does not read stderr slows nothing down: lines \
                 that find no room are dropped and counted.",
            ),
        ],
    },
    Topic {
        name: "metrics",
        title: "Metrics",
        section: None,
        blocks: &[
            Text(
                "/metrics on http and sse, in the text format of Prometheus, behind the same Host check as the rest; a \
                 token of the role metrics is enough. How to scrape it, and alert rules, are printed by:",
            ),
            Code("fabric-mcp --generate prometheus"),
            List(&[
                (
                    "fabric_mcp_calls_total{tool,outcome}",
                    "Calls, refused ones included; the outcome is ok or the last part of the URN",
                ),
                (
                    "fabric_mcp_call_duration_seconds{tool}",
                    "How long they took, a histogram",
                ),
                ("fabric_mcp_runs_in_flight", "Runs at this moment"),
                (
                    "fabric_mcp_memory_bytes, fabric_mcp_memory_limit_bytes",
                    "What requests, runs and answers hold of --max-memory, and how much that is",
                ),
                (
                    "fabric_mcp_tokens_total{model,direction}",
                    "Tokens that models read (input) and wrote (output), where Fabric reports them",
                ),
                (
                    "fabric_mcp_caller_tokens_total{caller,direction}",
                    "The same by caller: the first 100, then other",
                ),
                (
                    "fabric_mcp_http_responses_total{status}",
                    "Answers over HTTP",
                ),
                (
                    "fabric_mcp_callers_refused_total{reason}",
                    "Requests without a good token, or without the role they need",
                ),
                ("fabric_mcp_fabric_up", "1 if Fabric answers"),
                (
                    "process_resident_memory_bytes, process_cpu_seconds_total, process_open_fds, …",
                    "The process, on Linux",
                ),
                (
                    "fabric_mcp_runs_kept",
                    "Runs that have ended and can still be read",
                ),
                (
                    "fabric_mcp_connections, fabric_mcp_sessions",
                    "Connections, and legacy sessions that are remembered",
                ),
                (
                    "fabric_mcp_relayed_bytes_total",
                    "Text of runs that came from Fabric",
                ),
                ("fabric_mcp_fabric_errors_total{kind}", "Failures of Fabric"),
                ("fabric_mcp_build_info{version}", "The version that runs"),
            ]),
        ],
    },
    super::problems::ERRORS,
    super::problems::PROBLEMS,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn topics_are_named_once_and_each_section_of_settings_has_one() {
        let names: HashSet<_> = TOPICS.iter().map(|topic| topic.name).collect();
        assert_eq!(names.len(), TOPICS.len());
        for section in Section::ALL {
            let found = TOPICS
                .iter()
                .filter(|topic| topic.section == Some(section))
                .count();
            assert_eq!(
                found,
                usize::from(section != Section::Command),
                "{section:?}"
            );
        }
        for topic in TOPICS {
            for block in topic.blocks {
                match block {
                    Text(text) => {
                        assert!(!text.contains("  ") && text.ends_with(['.', ':']), "{text}")
                    }
                    List(terms) => assert!(
                        terms.iter().all(|(term, _)| term.chars().count() <= 78),
                        "{terms:?}"
                    ),
                    Code(code) => assert!(
                        code.lines().all(|line| line.chars().count() <= 68),
                        "{code}"
                    ),
                }
            }
        }
    }
}
