//! The help topics on errors of calls and on messages, with what to do.

use super::topics::HelpBlock::{List, Text};
use super::topics::Topic;

/// What an error's URN ends in.
pub(super) const ERRORS: Topic = Topic {
    name: "errors",
    title: "How calls fail",
    section: None,
    blocks: &[
        Text(
            "A failure is a result with isError and one paragraph: what happened, why, what to do. It ends in \
                 urn:fabric-mcp:error: and one of these words. The same is in _meta.error, as type, title, detail and \
                 request_id; the log has that request_id too.",
        ),
        List(&[
            (
                "fabric-api-unavailable",
                "Fabric cannot be reached: no connection, DNS, TLS, no answer in time to anything but a run, or \
                     502, 503, 504",
            ),
            (
                "fabric-api-unauthorized",
                "Fabric refused the key: 401, 403",
            ),
            ("fabric-internal-error", "Fabric failed: another 5xx"),
            (
                "fabric-api-error",
                "Fabric answered with an error, or with something that is not an answer",
            ),
            (
                "fabric-timeout",
                "Fabric took the run and sent no content within --idle-timeout: the model may have failed",
            ),
            (
                "fabric-stream-interrupted",
                "The output was cut short; what had arrived is kept in the result",
            ),
            ("response-too-large", "A limit on sizes"),
            (
                "pattern-not-found",
                "No such pattern; the closest names are suggested",
            ),
            (
                "invalid-request",
                "An argument, name, variable or pattern was refused",
            ),
            ("forbidden", "The caller's role or scope does not allow it"),
            ("too-many-requests", "Too many runs at once, or in a minute"),
            ("cancelled", "The caller cancelled"),
            ("internal-server-error", "A bug of fabric-mcp"),
        ]),
    ],
};

/// Messages that people see. A test compares them with what the sources say.
pub(super) const PROBLEMS: Topic = Topic {
    name: "problems",
    title: "When something does not work",
    section: None,
    blocks: &[
        Text(
            "Start with fabric-mcp --check, with the same variables as the client has. These are the usual \
                 messages, or parts of them:",
        ),
        List(&[
            (
                "Failed to connect to Fabric API at",
                "In the log at the start: fabric --serve does not run, or somewhere else. The server works as soon \
                     as Fabric does; the details say more",
            ),
            (
                "Nothing listens at",
                "Start fabric --serve, or correct the port in FABRIC_BASE_URL",
            ),
            (
                "the URL has no scheme; did you mean",
                "Write http:// before the host",
            ),
            (
                "The host name in … cannot be resolved",
                "A slip in the name, or DNS",
            ),
            (
                "answers with a web page",
                "A proxy or another program listens there: give Fabric's own address and path",
            ),
            (
                "Fabric wants an API key, and FABRIC_API_KEY is not set.",
                "Set it in the client's env: the variables of your shell are not passed on",
            ),
            (
                "Fabric refuses the key in FABRIC_API_KEY.",
                "It is not the one of fabric --serve --api-key",
            ),
            (
                "has expired, or this machine's clock is fast.",
                "Check the clock with date -u, then the certificate",
            ),
            (
                "comes from an authority that is not trusted here.",
                "Set SSL_CERT_FILE to that authority's certificate, in PEM",
            ),
            (
                "shows an authority's certificate",
                "Give Fabric, or the proxy before it, a certificate with CA:FALSE and its name as subjectAltName",
            ),
            (
                "does not speak TLS.",
                "Write http:// in FABRIC_BASE_URL, or correct its port",
            ),
            (
                "wants TLS",
                "Write https:// in FABRIC_BASE_URL, or correct its port",
            ),
            (
                "has no list of patterns",
                "Another program listens there, or the path in FABRIC_BASE_URL is wrong",
            ),
            (
                "Fabric has no patterns",
                "Fetch them on Fabric's machine: fabric --updatepatterns, and restart Fabric",
            ),
            (
                "Fabric lists no models",
                "Set a vendor up on Fabric's machine: fabric --setup, and restart Fabric",
            ),
            (
                "This looks like an old Fabric.",
                "It works; runs come in one piece before v1.4.367",
            ),
            (
                "Fabric has no pattern named",
                "A slip, or the pattern is not on Fabric's machine: fabric --updatepatterns there",
            ),
            (
                "missing required variable",
                "Give it in variables; fabric_get_pattern_details tells which the pattern has",
            ),
            (
                "broke off in the middle of the answer",
                "Fabric or a proxy before it ended the connection: their logs tell why. What had come of a run is kept",
            ),
            (
                "Fabric completed the run without any output.",
                "Fabric lost the reason: its own log has it. Mostly the model's name, or a variable that is \
                     missing",
            ),
            (
                "The run went silent",
                "Fabric took the run and sent nothing. The model may have failed (some versions hang then): \
                     Fabric's own log tells. A slow model needs a longer --idle-timeout",
            ),
            (
                "was silent for",
                "The same, perhaps in the middle of the output",
            ),
            (
                "something that is not a run",
                "Another program or a proxy answers in Fabric's place: give Fabric's own address and path",
            ),
            (
                "Fabric has no strategies",
                "Their folder is not on Fabric's machine: fabric --setup there fetches them",
            ),
            (
                "writes files on the Fabric host, so it is refused unless",
                "Start with --allow-pattern create_coding_feature if you want that",
            ),
            (
                "Too many calls are running and waiting already.",
                "Raise --max-runs, or ask for less at once",
            ),
            (
                "The memory of this server (--max-memory)",
                "Raise --max-memory, or send less at once",
            ),
            (
                "can be reached from other machines, and there is no token",
                "Give --tokens-file, FABRIC_MCP_AUTH_TOKEN or --oauth-issuer; or --allow-unauthenticated if something \
                     in front decides who comes in",
            ),
            (
                "is what other machines call a server, and there is no token",
                "The same: a name given by --allowed-host is a proxy's, and the proxy lets in everybody",
            ),
            (
                "is not one of this server's names.",
                "HTTP 403: start with --allowed-host and the name clients use, and with a token",
            ),
            (
                "may not use this server.",
                "HTTP 403 to a web page: start with --allowed-origin and its origin",
            ),
            (
                "A token is needed",
                "HTTP 401: send Authorization: Bearer TOKEN",
            ),
            (
                "The bearer token is refused",
                "HTTP 401: the rest of the sentence says why; nobody here has this token means that it is not in \
                     the tokens file, or no longer",
            ),
            (
                "This token may not do that",
                "HTTP 403, or a result: the token's role or OAuth scope is too small",
            ),
            (
                "its issuer gives no usable answer",
                "HTTP 503: the OAuth issuer cannot be reached or asked; the log and --check say why",
            ),
            (
                "may not be run on this server; allowed:",
                "Name one of these models, or none; --allow-model decides",
            ),
            (
                "is no run of yours that is kept",
                "The run's id is wrong, its time (--keep-runs) is over, or the server was restarted without \
                     --state-dir",
            ),
        ]),
        Text(
            "If the client gives up after a minute, that is its own limit: lower --answer-within, and see --help \
                 runs. If there are no tools in the client, the path in its configuration may not be absolute: \
                 --generate client-config prints it right. Its log shows what this program writes to stderr.",
        ),
    ],
};
