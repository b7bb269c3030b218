use super::fake::{Fake, IssuerRequest, Reply};
use super::*;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const DATE: i64 = 1_785_240_000;
const RESOURCE: &str = "http://localhost:8000/mcp";

/// A clock that is set by hand.
#[derive(Clone)]
struct HandClock(Arc<(AtomicU64, Instant)>);

impl HandClock {
    fn pass(&self, milliseconds: u64) {
        self.0.0.fetch_add(milliseconds, Ordering::Relaxed);
    }

    fn clock(&self) -> NowFn {
        let (elapsed, begun) = (self.0.clone(), self.0.1);
        Box::new(move || {
            let elapsed = elapsed.0.load(Ordering::Relaxed);
            Now {
                instant: begun + Duration::from_millis(elapsed),
                date: DATE + (elapsed / 1000) as i64,
            }
        })
    }
}

fn settings(fake: &Fake) -> OAuthSettings {
    OAuthSettings::of(&format!("{}/as", fake.url), "fabric mcp", "s3cret:+")
}

fn oauth_within(fake: &Fake, limit: Duration) -> (OAuth, HandClock) {
    let hand = HandClock(Arc::new((AtomicU64::new(0), Instant::now())));
    (
        OAuth::with(settings(fake), limit, hand.clock()).unwrap(),
        hand,
    )
}

fn oauth(fake: &Fake) -> (OAuth, HandClock) {
    oauth_within(fake, Duration::from_secs(20))
}

fn claims() -> Value {
    json!({"active": true, "aud": RESOURCE, "sub": "alice", "scope": "fabric:run", "exp": DATE + 3600})
}

fn good(_: &IssuerRequest) -> Reply {
    Reply::json(&claims())
}

fn with(name: &str, value: Value) -> Reply {
    let mut claims = claims();
    claims[name] = value;
    Reply::json(&claims)
}

fn refusal(oauth: &OAuth, token: &str) -> Option<AccessError> {
    oauth.check(token).err()
}

fn bad(flaw: Flaw) -> Option<AccessError> {
    Some(AccessError::BadToken(flaw))
}

fn down(seconds: u64) -> Option<AccessError> {
    Some(AccessError::Unavailable(Duration::from_secs(seconds)))
}

const DISCOVERY: &str = "GET /.well-known/oauth-authorization-server/as";
const QUESTION: &str = "POST /introspect";

#[test]
fn a_token_is_asked_about_once_as_the_rfc_has_it() {
    let fake = Fake::new(good);
    let (oauth, _) = oauth(&fake);
    let (identity, role, shown) = oauth.check("a.B-1_~+/==").unwrap();
    assert_eq!(identity.to_string(), format!("oauth:{}/as#alice", fake.url));
    assert_eq!(role, Role::Run);
    let seen = fake.seen();
    assert_eq!(
        seen.iter()
            .map(|seen| seen.line.as_str())
            .collect::<Vec<_>>(),
        [DISCOVERY, QUESTION]
    );
    assert_eq!(
        seen[1].body,
        "token=a.B-1_~%2B%2F%3D%3D&token_type_hint=access_token"
    );
    let has = |seen: &IssuerRequest, header: &str| {
        seen.headers
            .iter()
            .any(|had| had.eq_ignore_ascii_case(header))
    };
    assert!(
        has(
            &seen[1],
            "authorization: Basic ZmFicmljJTIwbWNwOnMzY3JldCUzQSUyQg=="
        ),
        "{:?}",
        seen[1]
    );
    assert!(
        has(&seen[1], "content-type: application/x-www-form-urlencoded")
            && has(&seen[1], "accept: application/json")
    );
    assert!(
        !seen[0]
            .headers
            .iter()
            .any(|header| header.to_ascii_lowercase().starts_with("authorization"))
    );
    assert!(oauth.check("a.B-1_~+/==").is_ok() && oauth.is_good(&shown));
    assert_eq!(fake.lines(), [""; 0]);
    assert!(oauth.check("another").is_ok());
    assert_eq!(fake.lines(), [QUESTION]);
    assert!(!format!("{shown:?}").contains("a.B-1"));
}

#[test]
fn what_is_no_token_and_what_is_ours_is_not_asked_about() {
    let fake = Fake::new(good);
    let (oauth, _) = oauth(&fake);
    for token in [
        "=",
        "a b",
        "a=b",
        "a,b",
        "tök",
        "a\"",
        &"x".repeat((8 << 10) + 1),
    ] {
        assert_eq!(refusal(&oauth, token), bad(Flaw::Malformed), "{token}");
    }
    assert_eq!(refusal(&oauth, "fmcp_0123"), bad(Flaw::Unknown));
    assert_eq!(fake.lines(), [""; 0]);
    assert_eq!(refusal(&oauth, &"x".repeat(8 << 10)), None);
}

#[test]
fn metadata_is_found_wherever_it_may_be() {
    for place in [
        DISCOVERY,
        "GET /.well-known/openid-configuration/as",
        "GET /as/.well-known/openid-configuration",
    ] {
        let fake = Fake::bare();
        let metadata = fake.metadata();
        fake.script(move |seen| match seen.line.as_str() {
            line if line == place => Reply::json(&metadata),
            QUESTION => good(seen),
            // Of no use, so the next one is tried.
            DISCOVERY => Reply::json(
                &json!({"issuer": "http://localhost/other", "introspection_endpoint": "http://localhost/x"}),
            ),
            _ => Reply::Answer(500, "no".into()),
        });
        assert_eq!(refusal(&oauth(&fake).0, "t"), None, "{place}");
        let lines = fake.lines();
        assert_eq!(
            (
                lines[lines.len() - 2].as_str(),
                lines[lines.len() - 1].as_str()
            ),
            (place, QUESTION)
        );
    }
}

#[test]
fn metadata_that_is_no_good_lets_nobody_in() {
    let change = |name: &'static str, value: Value| {
        move |mut metadata: Value| {
            metadata[name] = value;
            Reply::json(&metadata)
        }
    };
    let cases: Vec<Box<dyn FnOnce(Value) -> Reply>> = vec![
        Box::new(change("issuer", json!("http://localhost/as"))),
        Box::new(|metadata| {
            let slash = format!("{}/", metadata["issuer"].as_str().unwrap());
            change("issuer", json!(slash))(metadata)
        }),
        Box::new(change("issuer", json!(null))),
        Box::new(change("introspection_endpoint", json!(null))),
        Box::new(change("introspection_endpoint", json!("/introspect"))),
        Box::new(change(
            "introspection_endpoint",
            json!("http://10.0.0.1/introspect"),
        )),
        Box::new(change("introspection_endpoint", json!("ftp://localhost/"))),
        Box::new(change(
            "introspection_endpoint",
            json!("http://joe:pass@localhost/"),
        )),
        Box::new(|metadata| Reply::Answer(302, metadata.to_string())),
        Box::new(|metadata| Reply::Answer(500, metadata.to_string())),
        Box::new(|_| Reply::Answer(200, "<html>".into())),
        Box::new(|metadata| Reply::Answer(200, format!("{metadata}{}", " ".repeat(256 << 10)))),
        Box::new(|_| Reply::Raw(b"SSH-2.0-x\r\n".to_vec())),
        Box::new(|_| Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_vec())),
        Box::new(|_| Reply::Raw(Vec::new())),
    ];
    for (at, case) in cases.into_iter().enumerate() {
        let fake = Fake::bare();
        let reply = Mutex::new(Some(case(fake.metadata())));
        fake.script(move |seen| match seen.line.as_str() {
            QUESTION => good(seen),
            DISCOVERY => lock(&reply).take().unwrap_or(Reply::Raw(Vec::new())),
            _ => Reply::Answer(404, String::new()),
        });
        let (oauth, hand) = oauth(&fake);
        assert_eq!(refusal(&oauth, "t"), down(1), "{at}");
        assert!(!fake.lines().contains(&QUESTION.to_owned()), "{at}");
        fake.script(fake.with_metadata(good));
        assert_eq!(
            (refusal(&oauth, "t"), fake.lines().len()),
            (down(1), 0),
            "not tried again at once"
        );
        hand.pass(1000);
        assert_eq!(refusal(&oauth, "t"), None, "{at}");
    }
}

#[test]
fn redirects_are_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let fake = Fake::bare();
        let metadata = fake.metadata();
        // What the fake's `Location` points to would be good.
        fake.script(move |seen| match seen.line.as_str() {
            DISCOVERY => Reply::Answer(status, String::new()),
            "GET /introspect" => Reply::json(&metadata),
            QUESTION => good(seen),
            _ => Reply::Answer(404, String::new()),
        });
        assert_eq!(refusal(&oauth(&fake).0, "t"), down(1));
        assert!(
            !fake
                .lines()
                .iter()
                .any(|line| line.ends_with(" /introspect")),
            "{status}"
        );

        let asked = AtomicU64::new(0);
        let fake = Fake::new(move |seen| match asked.fetch_add(1, Ordering::Relaxed) {
            0 => Reply::Answer(status, claims().to_string()),
            _ => good(seen),
        });
        assert_eq!(refusal(&oauth(&fake).0, "t"), down(1));
        assert_eq!(fake.lines(), [DISCOVERY, QUESTION], "{status}");
    }
}

#[test]
fn bad_answers_are_refused_by_their_reason_and_kept_for_a_while() {
    for (name, value, expected) in [
        ("active", json!(false), bad(Flaw::Inactive)),
        ("active", json!("true"), bad(Flaw::Inactive)),
        ("aud", json!(null), bad(Flaw::Audience)),
        ("aud", json!("http://localhost:8000"), bad(Flaw::Audience)),
        ("aud", json!(["https://api.example"]), bad(Flaw::Audience)),
        ("exp", json!(DATE), bad(Flaw::Expired)),
        ("nbf", json!(DATE + 3600), bad(Flaw::Early)),
        ("iss", json!("http://localhost/as"), bad(Flaw::Issuer)),
        ("token_type", json!("DPoP"), bad(Flaw::Kind)),
        ("sub", json!(null), bad(Flaw::Nobody)),
        (
            "scope",
            json!("openid"),
            Some(AccessError::Forbidden(Role::Read)),
        ),
    ] {
        let fake = Fake::new(move |_| with(name, value.clone()));
        let (oauth, hand) = oauth(&fake);
        assert_eq!(refusal(&oauth, "t"), expected, "{name}");
        fake.seen();
        hand.pass(4999);
        assert_eq!(refusal(&oauth, "t"), expected, "{name}");
        assert_eq!(fake.lines(), [""; 0]);
        hand.pass(1);
        fake.script(fake.with_metadata(good));
        // A token without our scopes is a good one.
        let again = if name == "scope" { expected } else { None };
        assert_eq!(refusal(&oauth, "t"), again, "{name}");
    }
}

#[test]
fn a_good_answer_is_kept_for_a_minute_and_never_beyond_its_end() {
    let fake = Fake::new(good);
    let (oauth, hand) = oauth(&fake);
    assert_eq!(refusal(&oauth, "t"), None);
    fake.script(|_| Reply::json(&json!({"active": false})));
    hand.pass(59_999);
    assert_eq!(refusal(&oauth, "t"), None);
    hand.pass(1);
    assert_eq!(refusal(&oauth, "t"), bad(Flaw::Inactive));

    fake.script(fake.with_metadata(|_| with("exp", json!(DATE + 60 + 7))));
    assert_eq!(refusal(&oauth, "short"), None);
    fake.seen();
    hand.pass(6999);
    assert_eq!((refusal(&oauth, "short"), fake.lines().len()), (None, 0));
    hand.pass(1);
    assert_eq!(refusal(&oauth, "short"), bad(Flaw::Expired));
}

#[test]
fn an_issuer_that_makes_no_sense_lets_nobody_in_and_spoils_nothing_for_others() {
    let replies: [fn(&IssuerRequest) -> Reply; 13] = [
        |_| Reply::Answer(500, claims().to_string()),
        |_| Reply::Answer(302, claims().to_string()),
        |_| Reply::Answer(401, claims().to_string()),
        |_| Reply::Answer(404, claims().to_string()),
        |_| Reply::Answer(204, String::new()),
        |_| Reply::Answer(201, claims().to_string()),
        |_| Reply::Answer(200, String::new()),
        |_| Reply::Answer(200, "true".into()),
        |_| Reply::Answer(200, format!("{}{}", claims(), claims())),
        |_| Reply::Answer(200, r#"{"active": false, "active": true}"#.into()),
        |_| Reply::Answer(200, format!("{}{}", claims(), " ".repeat(256 << 10))),
        |_| {
            Reply::Raw(
                format!(
                    "HTTP/1.1 200 OK\r\n\r\n{}{}",
                    claims(),
                    " ".repeat(300 << 10)
                )
                .into_bytes(),
            )
        },
        |_| Reply::Answer(200, format!("[{}]", claims())),
    ];
    for (at, reply) in replies.into_iter().enumerate() {
        let fake = Fake::new(move |seen| {
            if seen.body.starts_with("token=odd&") {
                reply(seen)
            } else {
                good(seen)
            }
        });
        let (oauth, hand) = oauth(&fake);
        assert_eq!(refusal(&oauth, "odd"), down(1), "{at}");
        assert_eq!(refusal(&oauth, "t"), None, "{at}");
        fake.seen();
        assert_eq!(
            (refusal(&oauth, "odd"), fake.lines().len()),
            (down(1), 0),
            "{at}"
        );
        fake.script(fake.with_metadata(good));
        hand.pass(1000);
        assert_eq!(refusal(&oauth, "odd"), None, "{at}");
    }
}

#[test]
fn an_issuer_that_is_down_is_asked_in_ever_longer_steps() {
    let fake = Fake::new(good);
    let (oauth, hand) = oauth(&fake);
    assert_eq!(refusal(&oauth, "known"), None);
    fake.script(|_| Reply::Raw(Vec::new()));
    for wait in [1, 2, 4, 8, 16, 30, 30] {
        assert_eq!(refusal(&oauth, "t"), down(wait));
        assert!(!fake.lines().is_empty());
        assert_eq!(
            (refusal(&oauth, "other"), fake.lines().len()),
            (down(wait), 0)
        );
        if wait == 1 {
            assert_eq!(
                refusal(&oauth, "known"),
                None,
                "what was said before is good for its time"
            );
        }
        hand.pass(wait * 1000);
    }
    fake.script(fake.with_metadata(good));
    assert_eq!(
        (refusal(&oauth, "t"), refusal(&oauth, "other")),
        (None, None)
    );
    // And it begins anew.
    fake.script(|_| Reply::Raw(Vec::new()));
    assert_eq!(refusal(&oauth, "third"), down(1));
}

#[test]
fn an_issuer_that_is_silent_is_given_up() {
    for silence in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"active\": true",
    ] {
        let fake = Fake::new(move |_| Reply::Hang(silence.into()));
        assert_eq!(
            refusal(&oauth_within(&fake, Duration::from_millis(500)).0, "t"),
            down(1),
            "{silence}"
        );
        let fake = Fake::bare();
        fake.script(move |_| Reply::Hang(silence.into()));
        assert_eq!(
            refusal(&oauth_within(&fake, Duration::from_millis(50)).0, "t"),
            down(1),
            "{silence}"
        );
    }
}

#[test]
fn nobody_there_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/as", listener.local_addr().unwrap());
    drop(listener);
    let settings = OAuthSettings {
        issuer: WebUrl::parse(&url).unwrap(),
        ..settings(&Fake::bare())
    };
    assert!(matches!(
        OAuth::new(settings).unwrap().check("t").err(),
        Some(AccessError::Unavailable(_))
    ));
}

#[test]
fn connections_that_were_closed_meanwhile_are_no_failure() {
    let fake = Fake::bare();
    let answers = fake.with_metadata(good);
    fake.script(move |seen| {
        if seen.before > 0 {
            Reply::Raw(Vec::new())
        } else {
            answers(seen)
        }
    });
    let (oauth, _) = oauth(&fake);
    for token in ["a", "b", "c"] {
        assert_eq!(refusal(&oauth, token), None, "{token}");
    }
    assert!(
        fake.seen().iter().any(|seen| seen.before > 0),
        "a connection was used twice"
    );
}

#[test]
fn what_is_wrong_with_an_issuer_can_be_told_at_the_start() {
    let fake = Fake::new(good);
    let (known, _) = oauth(&fake);
    assert_eq!(known.probe(), Ok(()));
    assert_eq!(
        (refusal(&known, "t"), fake.lines()),
        (None, vec![DISCOVERY.to_owned(), QUESTION.to_owned()])
    );
    let nothing = Fake::bare();
    let why = "has no metadata, neither of OAuth nor of OpenID: check --oauth-issuer";
    assert_eq!(
        oauth(&nothing).0.probe(),
        Err(format!("the OAuth issuer {}/as {why}", nothing.url))
    );
    assert_eq!(
        nothing.lines(),
        [
            DISCOVERY,
            "GET /.well-known/openid-configuration/as",
            "GET /as/.well-known/openid-configuration"
        ]
    );
}

#[test]
fn an_endpoint_that_has_moved_is_found_again() {
    let fake = Fake::new(good);
    let (oauth, hand) = oauth(&fake);
    assert_eq!(refusal(&oauth, "a"), None);
    let mut metadata = fake.metadata();
    metadata["introspection_endpoint"] = json!(format!("{}/moved", fake.url));
    fake.script(move |seen| match seen.line.as_str() {
        DISCOVERY => Reply::json(&metadata),
        "POST /moved" => good(seen),
        _ => Reply::Answer(404, "{}".into()),
    });
    assert_eq!(refusal(&oauth, "b"), down(1));
    hand.pass(1000);
    assert_eq!(refusal(&oauth, "b"), None);
}

#[test]
fn who_comes_at_once_with_one_token_is_one_question() {
    let fake = Fake::new(good);
    let (oauth, _) = oauth(&fake);
    thread::scope(|scope| {
        let all: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| refusal(&oauth, "t")))
            .collect();
        assert!(all.into_iter().all(|one| one.join().unwrap().is_none()));
    });
    assert_eq!(fake.lines(), [DISCOVERY, QUESTION]);
}

#[test]
fn metadata_is_looked_for_by_one_for_all() {
    let fake = Fake::new(good);
    let (oauth, _) = oauth(&fake);
    thread::scope(|scope| {
        let all: Vec<_> = (0..16)
            .map(|n| {
                scope.spawn({
                    let oauth = &oauth;
                    move || refusal(oauth, &format!("t{n}"))
                })
            })
            .collect();
        assert!(all.into_iter().all(|one| one.join().unwrap().is_none()));
    });
    let lines = fake.lines();
    assert_eq!(
        (
            lines.len(),
            lines.iter().filter(|line| *line == DISCOVERY).count()
        ),
        (17, 1)
    );
}

#[test]
fn a_stream_ends_with_its_token() {
    let fake = Fake::new(|_| with("exp", json!(DATE + 90)));
    let (oauth, hand) = oauth(&fake);
    let shown = oauth.check("t").unwrap().2;
    fake.seen();
    hand.pass(59_999);
    assert!(oauth.is_good(&shown) && fake.lines().is_empty());
    hand.pass(1);
    assert!(oauth.is_good(&shown));
    assert_eq!(fake.lines(), [QUESTION]);
    hand.pass(29_999);
    assert!(oauth.is_good(&shown) && fake.lines().is_empty());
    hand.pass(1);
    assert!(!oauth.is_good(&shown));
    assert_eq!(fake.lines(), [""; 0]);
}

#[test]
fn a_stream_ends_when_its_token_is_revoked_or_is_another_one() {
    for (name, value) in [
        ("active", json!(false)),
        ("scope", json!("fabric:read")),
        ("scope", json!("")),
        ("sub", json!("bob")),
        ("aud", json!("other")),
    ] {
        let fake = Fake::new(good);
        let (oauth, hand) = oauth(&fake);
        let shown = oauth.check("t").unwrap().2;
        fake.script(fake.with_metadata(move |_| with(name, value.clone())));
        assert!(oauth.is_good(&shown));
        hand.pass(60_000);
        assert!(!oauth.is_good(&shown), "{name}");
    }
}

#[test]
fn a_stream_outlives_a_short_outage_and_no_long_one() {
    let fake = Fake::new(good);
    let (oauth, hand) = oauth(&fake);
    let shown = oauth.check("t").unwrap().2;
    fake.script(|_| Reply::Raw(Vec::new()));
    hand.pass(60_000);
    assert!(oauth.is_good(&shown) && refusal(&oauth, "t").is_some());
    hand.pass(59_999);
    assert!(oauth.is_good(&shown));
    hand.pass(1);
    assert!(!oauth.is_good(&shown));

    let shown = {
        fake.script(fake.with_metadata(good));
        hand.pass(30_000);
        oauth.check("u").unwrap().2
    };
    fake.script(|_| Reply::Raw(Vec::new()));
    hand.pass(119_999);
    assert!(oauth.is_good(&shown));
    fake.script(fake.with_metadata(|_| Reply::json(&json!({"active": false}))));
    hand.pass(30_000);
    assert!(!oauth.is_good(&shown), "it was revoked meanwhile");
}

#[test]
fn what_failed_together_counts_once() {
    let (mut health, begun) = (Health::default(), Instant::now());
    let at = |seconds| begun + Duration::from_secs(seconds);
    let second = Duration::from_secs(1);
    assert_eq!(health.failed(at(0), at(10)), second);
    assert_eq!(
        health.failed(at(5), at(10)),
        second,
        "it went out before the failure was known"
    );
    assert_eq!(health.enter(at(10), second * 20), Err(second));
    assert_eq!(health.enter(at(11), second * 20), Ok(()));
    assert_eq!(
        health.enter(at(11), second * 20),
        Err(second * 20),
        "one at a time"
    );
    assert_eq!(health.failed(at(11), at(12)), second * 2);
    assert!(health.worked() && !health.worked());
    assert_eq!(health.enter(at(12), second), Ok(()));
}

#[test]
fn the_same_trouble_is_told_once_a_minute() {
    let (mut health, now) = (Health::default(), Instant::now());
    let at = |seconds| now + Duration::from_secs(seconds);
    assert!(
        health.is_news("is down", at(0))
            && !health.is_news("is down", at(59))
            && health.is_news("is down", at(60))
    );
    assert!(health.is_news("is odd", at(60)));
}
