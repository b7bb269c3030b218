//! What `--help TOPIC` and the man page say beyond the flags: one thing each, told once for both.

use super::flags::Section;

/// A topic of the help.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    /// What is typed after `--help`.
    pub(crate) name: &'static str,
    /// Its heading.
    pub(crate) title: &'static str,
    /// What it says.
    pub(crate) blocks: &'static [Block],
    /// The flags that belong to it.
    pub(crate) section: Option<Section>,
}

/// A part of a topic.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// A paragraph, wrapped where it is shown.
    Text(&'static str),
    /// Lines to be copied as they are, of 68 characters at most.
    Code(&'static str),
}

use Block::{Code, Text};

/// Every topic.
pub(crate) const TOPICS: &[Topic] = &[
    Topic {
        name: "clients",
        title: "Setting up a client",
        section: None,
        blocks: &[
            Text(
                "--install adds this server to a client's own configuration file. It shows the change and asks, keeps a \
                 backup beside the file, and touches nothing else in it, not even a comment. --uninstall takes the entry \
                 out again.",
            ),
            Code(
                "fabric-mcp --install cursor\nfabric-mcp --demo --install vscode --yes\nfabric-mcp --uninstall cursor",
            ),
            Text(
                "The settings it is started with go along, by flag or by variable, but no secret: where the client can \
                 refer to a variable the entry does so, elsewhere there is an empty FABRIC_API_KEY to fill in. Clients \
                 do not pass on the variables of your shell.",
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
        ],
    },
    Topic {
        name: "call",
        title: "Calling tools from the shell",
        section: None,
        blocks: &[
            Text(
                "--call runs any tool as a client's call would. Its arguments follow as one word of JSON; --list-tools \
                 names them. Text goes to stdout as it comes, all else to stderr. The exit code is 0 or 1.",
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
            Code("export FABRIC_BASE_URL=http://127.0.0.1:8080 FABRIC_API_KEY=KEY\nfabric-mcp --check"),
            Text(
                "A run goes to Fabric once, whatever happens. No redirect is followed. For an https:// Fabric of a \
                 private authority, SSL_CERT_FILE names the certificates to trust.",
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
                "Many clients give up on a call after a minute. A run that takes longer than --answer-within goes on, and \
                 fabric_get_run waits for the rest of it. With --state-dir, its output survives the end of this program.",
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
                "(umask 077; openssl rand -hex 32 > token)\nfabric-mcp --transport http --host 0.0.0.0 --auth-token-file token",
            ),
            Text(
                "Behind a proxy, name the host that clients call by --allowed-host, and have the proxy pass on the \
                 headers Host, Origin and Authorization, and not buffer answers. Web pages need --allowed-origin.",
            ),
            Code(
                "location /mcp {\n    proxy_pass http://127.0.0.1:8000;\n    proxy_set_header Host $host;\n    \
                 proxy_http_version 1.1;\n    proxy_buffering off;\n    proxy_read_timeout 1h;\n}",
            ),
            Text(
                "Several processes need nothing in common, and find each other's runs in a shared --state-dir. Have the \
                 proxy choose by Mcp-Session-Id where it is sent. /healthz says whether the program lives and /readyz \
                 whether Fabric answers; neither asks for the token. /metrics, for Prometheus, does.",
            ),
        ],
    },
    Topic {
        name: "service",
        title: "Running as a service",
        section: Some(Section::Server),
        blocks: &[
            Text("A hardened unit for systemd, whose first lines say how to make the token:"),
            Code("fabric-mcp --generate systemd-unit |\n  sudo tee /etc/systemd/system/fabric-mcp.service"),
            Text(
                "On SIGTERM and SIGINT it finishes what runs within --drain-timeout; a second signal ends it at once. \
                 The log goes to stderr, one line an event; input, output and secrets are never in it.",
            ),
        ],
    },
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
            let found = TOPICS.iter().filter(|topic| topic.section == Some(section)).count();
            assert_eq!(found, usize::from(section != Section::Command), "{section:?}");
        }
        for topic in TOPICS {
            for block in topic.blocks {
                match block {
                    Text(text) => assert!(!text.contains("  ") && text.ends_with(['.', ':']), "{text}"),
                    Code(code) => assert!(code.lines().all(|line| line.chars().count() <= 68), "{code}"),
                }
            }
        }
    }
}
