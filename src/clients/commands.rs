//! The commands by which some clients add a server themselves.

use crate::cli::flags::{API_KEY, AUTH_TOKEN};
use crate::cli::{Key, Launch, McpClient};

use super::entry::{authorization, reference};
use super::{Layout, NAME, Node, System, entry};

/// The command that adds the server, in one line for the shell of `system`.
///
/// # Errors
/// Why there is none, as said of the client.
pub(crate) fn command(
    client: McpClient,
    system: System,
    program: &str,
    launch: &Launch,
) -> Result<String, &'static str> {
    const NONE: &str = "has no command that adds such a server";
    let transport = if matches!(launch, Launch::Sse(_)) {
        "sse"
    } else {
        "http"
    };
    let words = match (client, launch) {
        (McpClient::ClaudeCode, Launch::Program { args, env, key }) => {
            // --env takes all words up to the next flag.
            let mut words = words(["claude", "mcp", "add"]);
            words.extend(pairs("--env", client, env, *key));
            words.extend(self::words(["--scope", "user", NAME, "--", program]));
            words.extend(args.iter().cloned());
            words
        }
        (McpClient::ClaudeCode, Launch::Url(url) | Launch::Sse(url)) => {
            let mut words = words([
                "claude",
                "mcp",
                "add",
                "--transport",
                transport,
                "--scope",
                "user",
                NAME,
                url,
            ]);
            words.extend([
                "--header".to_owned(),
                format!("Authorization: {}", authorization(client)),
            ]);
            words
        }
        (McpClient::Vscode, launch) => {
            let Node::Object(members) = entry(client, program, launch) else {
                return Err(NONE);
            };
            let named = [("name".to_owned(), Node::text_of(NAME))];
            let server = Node::object(named.into_iter().chain(members));
            let text = server.text(
                &Layout {
                    unit: None,
                    newline: "\n",
                },
                "",
            );
            vec!["code".to_owned(), "--add-mcp".to_owned(), text]
        }
        (McpClient::Codex, Launch::Program { key: Key::Set, .. }) => {
            return Err("needs an entry: its command cannot pass FABRIC_API_KEY on");
        }
        (McpClient::Codex, Launch::Program { args, env, .. }) => {
            let mut words = words(["codex", "mcp", "add", NAME]);
            words.extend(pairs("--env", client, env, Key::Unused));
            words.extend(self::words(["--", program]));
            words.extend(args.iter().cloned());
            words
        }
        (McpClient::Codex, Launch::Url(url)) => words([
            "codex",
            "mcp",
            "add",
            NAME,
            "--url",
            url,
            "--bearer-token-env-var",
            AUTH_TOKEN,
        ]),
        (McpClient::GeminiCli, Launch::Program { args, env, key }) => {
            let mut words = words(["gemini", "mcp", "add", "--scope", "user"]);
            words.extend(pairs("--env", client, env, *key));
            words.extend(self::words([NAME, program]));
            if !args.is_empty() {
                words.push("--".to_owned());
            }
            words.extend(args.iter().cloned());
            words
        }
        (McpClient::GeminiCli, Launch::Url(url) | Launch::Sse(url)) => {
            let header = format!("Authorization: {}", authorization(client));
            words([
                "gemini",
                "mcp",
                "add",
                "--scope",
                "user",
                "--transport",
                transport,
                "--header",
                &header,
                NAME,
                url,
            ])
        }
        _ => return Err(NONE),
    };
    Ok(words
        .iter()
        .map(|word| quoted(word, system))
        .collect::<Vec<_>>()
        .join(" "))
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// `flag NAME=VALUE` for each variable; Fabric's key only as a reference.
fn pairs(flag: &str, client: McpClient, env: &[(String, String)], key: Key) -> Vec<String> {
    let key = (key == Key::Set).then(|| (API_KEY.to_owned(), reference(client, API_KEY, "")));
    let all = env.iter().cloned().chain(key);
    all.flat_map(|(name, value)| [flag.to_owned(), format!("{name}={value}")])
        .collect()
}

/// Quotes a word for a POSIX shell or for Windows.
fn quoted(word: &str, system: System) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@".contains(c);
    if !word.is_empty()
        && word
            .chars()
            .all(|c| plain(c) || (system == System::Windows && c == '\\'))
    {
        return word.to_owned();
    }
    match system {
        System::Windows => format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
        System::Linux | System::MacOs => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_that_of_the_clients_documentation() {
        let env = vec![("FABRIC_BASE_URL".to_owned(), "http://f:1".to_owned())];
        let start = Launch::Program {
            args: vec!["--max-runs".into(), "3".into()],
            env,
            key: Key::Set,
        };
        let url = Launch::Url("https://m/mcp".into());
        let mut unset = start.clone();
        if let Launch::Program { key, .. } = &mut unset {
            *key = Key::Unset;
        }
        let on = |client, launch| command(client, System::Linux, "/opt/it's", launch);
        for (client, by_program, by_url) in [
            (
                McpClient::ClaudeCode,
                "claude mcp add --env FABRIC_BASE_URL=http://f:1 --env 'FABRIC_API_KEY=${FABRIC_API_KEY}' --scope user \
                 fabric -- '/opt/it'\\''s' --max-runs 3",
                "claude mcp add --transport http --scope user fabric https://m/mcp --header 'Authorization: Bearer \
                 ${FABRIC_MCP_AUTH_TOKEN}'",
            ),
            (
                McpClient::Vscode,
                "code --add-mcp '{\"name\": \"fabric\", \"type\": \"stdio\", \"command\": \"/opt/it'\\''s\", \"args\": \
                 [\"--max-runs\", \"3\"], \"env\": {\"FABRIC_BASE_URL\": \"http://f:1\", \"FABRIC_API_KEY\": \
                 \"${env:FABRIC_API_KEY}\"}}'",
                "code --add-mcp '{\"name\": \"fabric\", \"type\": \"http\", \"url\": \"https://m/mcp\", \"headers\": \
                 {\"Authorization\": \"Bearer ${env:FABRIC_MCP_AUTH_TOKEN}\"}}'",
            ),
            (
                McpClient::Codex,
                "codex mcp add fabric --env FABRIC_BASE_URL=http://f:1 -- '/opt/it'\\''s' --max-runs 3",
                "codex mcp add fabric --url https://m/mcp --bearer-token-env-var FABRIC_MCP_AUTH_TOKEN",
            ),
            (
                McpClient::GeminiCli,
                "gemini mcp add --scope user --env FABRIC_BASE_URL=http://f:1 --env \
                 'FABRIC_API_KEY=${FABRIC_API_KEY}' fabric '/opt/it'\\''s' -- --max-runs 3",
                "gemini mcp add --scope user --transport http --header 'Authorization: Bearer \
                 ${FABRIC_MCP_AUTH_TOKEN}' fabric https://m/mcp",
            ),
        ] {
            let start = if client == McpClient::Codex {
                &unset
            } else {
                &start
            };
            assert_eq!(on(client, start).as_deref(), Ok(by_program));
            assert_eq!(on(client, &url).as_deref(), Ok(by_url));
        }
        let sse = Launch::Sse("https://m/sse".into());
        for (client, expected) in [
            (
                McpClient::ClaudeCode,
                "claude mcp add --transport sse --scope user fabric https://m/sse --header ",
            ),
            (
                McpClient::Vscode,
                "code --add-mcp '{\"name\": \"fabric\", \"type\": \"sse\", \"url\": \"https://m/sse\"",
            ),
            (
                McpClient::GeminiCli,
                "gemini mcp add --scope user --transport sse --header ",
            ),
        ] {
            let command = on(client, &sse).unwrap();
            assert!(command.starts_with(expected), "{command}");
        }
        for client in McpClient::ALL {
            let known = [
                McpClient::ClaudeCode,
                McpClient::Vscode,
                McpClient::Codex,
                McpClient::GeminiCli,
            ];
            assert_eq!(
                on(client, &unset).is_ok(),
                known.contains(&client),
                "{client:?}"
            );
        }
        assert!(
            on(McpClient::Codex, &start)
                .unwrap_err()
                .contains("FABRIC_API_KEY")
        );
    }

    #[test]
    fn windows_quotes_differently() {
        assert_eq!(
            quoted("C:\\a b\\f.exe", System::Windows),
            "\"C:\\\\a b\\\\f.exe\""
        );
        assert_eq!(quoted("C:\\f.exe", System::Windows), "C:\\f.exe");
        assert_eq!(quoted("{\"a\"}", System::Windows), "\"{\\\"a\\\"}\"");
    }
}
