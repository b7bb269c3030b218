//! The whole of `oauth` against an issuer that may misbehave.

use super::super::tokens::fingerprint;
use super::fake::{Fake, FakeReply};
use super::*;
use crate::fabric::fixture::FixtureRequest;
use crate::time::hand::{HandClock, TODAY};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

const DATE: i64 = (TODAY / 1000) as i64;
const RESOURCE: &str = "http://localhost:8000/mcp";

fn settings(fake: &Fake) -> OAuthSettings {
    OAuthSettings::of(&format!("{}/as", fake.url), "fabric mcp", "s3cret:+")
}

fn oauth_within(fake: &Fake, limit: Duration) -> (OAuth, HandClock) {
    let hand = HandClock::default();
    let oauth = OAuth {
        limit,
        clock: Box::new(hand.clone()),
        ..OAuth::new(settings(fake)).unwrap()
    };
    (oauth, hand)
}

fn oauth(fake: &Fake) -> (OAuth, HandClock) {
    oauth_within(fake, Duration::from_secs(20))
}

fn claims() -> Value {
    json!({"active": true, "aud": RESOURCE, "sub": "alice", "scope": "fabric:run", "exp": DATE + 3600})
}

fn active(_: &FixtureRequest) -> FakeReply {
    FakeReply::json(&claims())
}

fn with(name: &str, value: Value) -> FakeReply {
    let mut claims = claims();
    claims[name] = value;
    FakeReply::json(&claims)
}

fn check(oauth: &OAuth, token: &str) -> Result<(Arc<Known>, Grant), AccessError> {
    oauth.check(
        (token, fingerprint(token)),
        peer(1),
        &Accounts::alone(1),
        &|| true,
    )
}

fn peer(n: u8) -> Identity {
    Identity::peer([10, 0, 0, n].into())
}

fn refusal(oauth: &OAuth, token: &str) -> Option<AccessError> {
    check(oauth, token).err()
}

fn bad(flaw: Flaw) -> Option<AccessError> {
    Some(AccessError::BadToken(flaw))
}

fn down(seconds: u64) -> Option<AccessError> {
    Some(AccessError::Unavailable(Duration::from_secs(seconds)))
}

const DISCOVERY: &str = "GET /.well-known/oauth-authorization-server/as";
/// Where metadata is looked for, in this order.
const PLACES: [&str; 3] = [
    DISCOVERY,
    "GET /.well-known/openid-configuration/as",
    "GET /as/.well-known/openid-configuration",
];
const QUESTION: &str = "POST /introspect";

#[test]
fn a_silent_issuer_is_always_described_in_the_same_words() {
    let fake = Fake::bare();
    fake.script(|seen| match seen.line.as_str() {
        DISCOVERY => FakeReply::Answer(404, "{}".into()),
        _ => FakeReply::Hang(Vec::new()),
    });
    // What is left of the time differs, and the same is logged only once a minute.
    let said = oauth_within(&fake, Duration::from_millis(300)).0.probe();
    let said = said.unwrap_err();
    assert!(said.ends_with(" does not answer within 0.3 s"), "{said}");
}

#[test]
fn a_token_is_asked_about_once_as_the_rfc_has_it() {
    let fake = Fake::new(active);
    let (oauth, _) = oauth(&fake);
    let (known, grant) = check(&oauth, "a.B-1_~+/==").unwrap();
    let alice = format!("oauth:{}/as#alice", fake.url);
    assert_eq!((grant.identity.to_string(), grant.role), (alice, Role::Run));
    let seen = fake.seen();
    let found = seen.iter();
    let found = found.map(|seen| seen.line.as_str()).collect::<Vec<_>>();
    assert_eq!(found, [DISCOVERY, QUESTION]);
    let expected = "token=a.B-1_~%2B%2F%3D%3D&token_type_hint=access_token";
    assert_eq!(seen[1].body, expected);
    let basic = "Basic ZmFicmljJTIwbWNwOnMzY3JldCUzQSUyQg==";
    for (name, value) in [
        ("authorization", basic),
        ("content-type", "application/x-www-form-urlencoded"),
        ("accept", "application/json"),
    ] {
        assert_eq!(seen[1].headers[name], value);
    }
    assert!(!seen[0].headers.contains_key("authorization"));
    assert!(check(&oauth, "a.B-1_~+/==").is_ok() && oauth.grant(&known, false) == Ok(grant));
    assert_eq!(fake.lines(), [""; 0]);
    assert!(check(&oauth, "another").is_ok());
    assert_eq!(fake.lines(), [QUESTION]);
}

#[test]
fn what_is_ours_is_not_asked_about() {
    let fake = Fake::new(active);
    let (oauth, _) = oauth(&fake);
    assert_eq!(refusal(&oauth, "fmcp_0123"), bad(Flaw::UNKNOWN));
    assert_eq!(fake.lines(), [""; 0]);
    assert_eq!(refusal(&oauth, &"x".repeat(8 << 10)), None);
}

#[test]
fn metadata_is_found_wherever_it_may_be() {
    for place in PLACES {
        let fake = Fake::bare();
        let metadata = fake.metadata();
        fake.script(move |seen| match seen.line.as_str() {
            line if line == place => FakeReply::json(&metadata),
            QUESTION => active(seen),
            // Of no use, so the next one is tried.
            DISCOVERY => FakeReply::json(
                &json!({"issuer": "http://localhost/other", "introspection_endpoint": "http://localhost/x"}),
            ),
            _ => FakeReply::Answer(500, "no".into()),
        });
        assert_eq!(refusal(&oauth(&fake).0, "t"), None, "{place}");
        assert!(
            fake.lines()
                .ends_with(&[place, QUESTION].map(str::to_owned))
        );
    }
}

#[test]
fn metadata_that_is_no_good_lets_nobody_in() {
    let change = |name: &'static str, value: Value| {
        move |mut metadata: Value| {
            metadata[name] = value;
            FakeReply::json(&metadata)
        }
    };
    let cases: Vec<Box<dyn FnOnce(Value) -> FakeReply>> = vec![
        Box::new(change("issuer", json!("http://localhost/as"))),
        Box::new(change("issuer", json!(null))),
        Box::new(change("introspection_endpoint", json!(null))),
        Box::new(change("introspection_endpoint", json!("http://10.0.0.1/i"))),
        Box::new(|metadata| FakeReply::Answer(500, metadata.to_string())),
        Box::new(|metadata| FakeReply::Answer(200, format!("{metadata}{}", " ".repeat(256 << 10)))),
        Box::new(|_| FakeReply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_vec())),
    ];
    for (at, case) in cases.into_iter().enumerate() {
        let fake = Fake::bare();
        let reply = Mutex::new(Some(case(fake.metadata())));
        fake.script(move |seen| match seen.line.as_str() {
            QUESTION => active(seen),
            DISCOVERY => lock(&reply).take().unwrap_or(FakeReply::Raw(Vec::new())),
            _ => FakeReply::Answer(404, String::new()),
        });
        let (oauth, hand) = oauth(&fake);
        assert_eq!(refusal(&oauth, "t"), down(1), "{at}");
        assert!(!fake.lines().contains(&QUESTION.to_owned()), "{at}");
        fake.script(fake.with_metadata(active));
        let found = (refusal(&oauth, "t"), fake.lines().len());
        assert_eq!(found, (down(1), 0), "not tried again at once");
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
            DISCOVERY => FakeReply::Answer(status, String::new()),
            "GET /introspect" => FakeReply::json(&metadata),
            QUESTION => active(seen),
            _ => FakeReply::Answer(404, String::new()),
        });
        assert_eq!(refusal(&oauth(&fake).0, "t"), down(1));
        let lines = fake.lines().join("\n");
        assert!(!lines.contains(" /introspect"), "{status}: {lines}");

        let asked = AtomicU64::new(0);
        let fake = Fake::new(move |seen| match asked.fetch_add(1, Ordering::Relaxed) {
            0 => FakeReply::Answer(status, claims().to_string()),
            _ => active(seen),
        });
        assert_eq!(refusal(&oauth(&fake).0, "t"), down(1));
        assert_eq!(fake.lines(), [DISCOVERY, QUESTION], "{status}");
    }
}

#[test]
fn bad_answers_are_refused_by_their_reason_and_kept_for_a_while() {
    let powerless = Some(AccessError::Forbidden(Role::Read));
    for (name, value, expected) in [
        ("active", json!(false), bad(Flaw::INACTIVE)),
        ("scope", json!("openid"), powerless),
    ] {
        let fake = Fake::new(move |_| with(name, value.clone()));
        let (oauth, hand) = oauth(&fake);
        assert_eq!(refusal(&oauth, "t"), expected, "{name}");
        fake.seen();
        hand.pass(4999);
        assert_eq!(refusal(&oauth, "t"), expected, "{name}");
        assert_eq!(fake.lines(), [""; 0]);
        hand.pass(1);
        fake.script(fake.with_metadata(active));
        assert_eq!(refusal(&oauth, "t"), None, "{name}");
    }
}

#[test]
fn a_good_answer_is_kept_for_a_minute_and_never_beyond_its_end() {
    let fake = Fake::new(active);
    let (oauth, hand) = oauth(&fake);
    assert_eq!(refusal(&oauth, "t"), None);
    fake.script(|_| FakeReply::json(&json!({"active": false})));
    hand.pass(59_999);
    assert_eq!(refusal(&oauth, "t"), None);
    hand.pass(1);
    assert_eq!(refusal(&oauth, "t"), bad(Flaw::INACTIVE));

    fake.script(fake.with_metadata(|_| with("exp", json!(DATE + 60 + 7))));
    assert_eq!(refusal(&oauth, "short"), None);
    fake.seen();
    hand.pass(6999);
    assert_eq!((refusal(&oauth, "short"), fake.lines().len()), (None, 0));
    hand.pass(1);
    assert_eq!(refusal(&oauth, "short"), bad(Flaw::EXPIRED));
}

#[test]
fn an_odd_answer_about_one_token_lets_it_not_in_and_locks_nobody_out() {
    let replies: [fn() -> FakeReply; 8] = [
        || FakeReply::Answer(500, claims().to_string()),
        || FakeReply::Answer(302, claims().to_string()),
        || FakeReply::Answer(200, String::new()),
        || FakeReply::Answer(200, "<html>".into()),
        || FakeReply::Answer(200, format!("{}{}", claims(), claims())),
        || FakeReply::Answer(200, "[]".into()),
        || FakeReply::Answer(200, format!("{}{}", claims(), " ".repeat(256 << 10))),
        || FakeReply::Raw(Vec::new()),
    ];
    for (at, reply) in replies.into_iter().enumerate() {
        // This also holds if the odd answer is the first after an outage.
        let fake = Fake::new(active);
        let (oauth, hand) = oauth(&fake);
        fake.script(|_| FakeReply::Raw(Vec::new()));
        assert_eq!(refusal(&oauth, "t"), down(1));
        hand.pass(1000);
        fake.script(fake.with_metadata(move |seen| {
            if seen.body.starts_with("token=odd&") {
                reply()
            } else {
                active(seen)
            }
        }));
        for round in 0..3 {
            assert_eq!(refusal(&oauth, "odd"), down(1), "{at}");
            assert_eq!(refusal(&oauth, &format!("t{round}")), None, "{at}");
            fake.seen();
            let again = (refusal(&oauth, "odd"), fake.lines().len());
            assert_eq!(again, (down(1), 0), "{at}");
            hand.pass(1000);
        }
        fake.script(fake.with_metadata(active));
        assert_eq!(refusal(&oauth, "odd"), None, "{at}");
    }
}

#[test]
fn an_issuer_that_is_silent_is_given_up() {
    for silence in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"active\": true",
    ] {
        let fake = Fake::new(move |_| FakeReply::Hang(silence.into()));
        let found = refusal(&oauth_within(&fake, Duration::from_millis(500)).0, "t");
        assert_eq!(found, down(1), "{silence}");
        let fake = Fake::bare();
        fake.script(move |_| FakeReply::Hang(silence.into()));
        let found = refusal(&oauth_within(&fake, Duration::from_millis(50)).0, "t");
        assert_eq!(found, down(1), "{silence}");
    }
}

/// What `--check` says of an issuer that answers questions about any token and requests for one like this.
fn probed(claims: FakeReply, token: Option<FakeReply>) -> String {
    let fake = Fake::bare();
    let mut metadata = fake.metadata();
    if token.is_some() {
        metadata["token_endpoint"] = json!(format!("{}/token", fake.url));
    }
    let replies = Mutex::new((claims, token));
    fake.script(move |seen| {
        let replies = lock(&replies);
        match seen.line.as_str() {
            DISCOVERY => FakeReply::json(&metadata),
            QUESTION => replies.0.clone(),
            "POST /token" => {
                let form = "grant_type=client_credentials&scope=fabric%3Aread&resource=http%3A%2F%2Flocalhost%3A8000%2Fmcp";
                assert_eq!(seen.body, form);
                replies.1.clone().unwrap()
            }
            _ => FakeReply::Answer(404, "{}".into()),
        }
    });
    let said = oauth(&fake).0.probe();
    said.unwrap_or_else(|why| why.replace(&fake.url, "URL"))
}

#[test]
fn what_an_issuer_lacks_is_told_before_anybody_comes() {
    let nothing = Fake::bare();
    let why = "has no metadata, neither of OAuth nor of OpenID: check --oauth-issuer";
    let expected = Err(format!("the OAuth issuer {}/as {why}", nothing.url));
    assert_eq!(oauth(&nothing).0.probe(), expected);
    assert_eq!(nothing.lines(), PLACES);
    let refused = |error: &str| Some(FakeReply::Answer(400, json!({"error": error}).to_string()));
    let token = || Some(FakeReply::json(&json!({"access_token": "t"})));
    let claims = || FakeReply::json(&claims());
    let refuses = "the OAuth issuer URL/as refuses this server itself (HTTP 401): check \
        FABRIC_MCP_OAUTH_CLIENT_ID and FABRIC_MCP_OAUTH_CLIENT_SECRET, and that this client may \
        introspect";
    let untested = |why: &str| format!("introspection works; the audience was not tested ({why})");
    let elsewhere = "the OAuth issuer URL/as issues tokens for another audience: have it put \
        http://localhost:8000/mcp into those with the scopes fabric:read fabric:run";
    let inactive = "the OAuth issuer URL/as says that a token it has just issued is inactive: have \
        it put FABRIC_MCP_OAUTH_CLIENT_ID into the audience too, or let this client introspect \
        the tokens of others";
    let powerless = "the OAuth issuer URL/as issues tokens that are refused: This token may not \
        do that: the request needs the role read, or the OAuth scope fabric:read.";
    let fits = "introspection works, and the audience fits";
    let unauthorized = FakeReply::Answer(401, "{}".into());
    let (client, escape) = ("unauthorized_client", "\u{1b}[31m");
    for (claims, token, said) in [
        (unauthorized, token(), refuses.to_owned()),
        (claims(), None, untested("no token endpoint")),
        (claims(), refused(client), untested(client)),
        (claims(), refused(escape), untested("HTTP 400")),
        (with("aud", json!("account")), token(), elsewhere.to_owned()),
        (with("active", json!(false)), token(), inactive.to_owned()),
        (
            with("scope", json!("openid")),
            token(),
            powerless.to_owned(),
        ),
        (claims(), token(), fits.to_owned()),
    ] {
        assert_eq!(probed(claims, token), said);
    }
}

#[test]
fn an_endpoint_that_has_moved_is_found_again() {
    let fake = Fake::new(active);
    let (oauth, hand) = oauth(&fake);
    assert_eq!(refusal(&oauth, "a"), None);
    let mut metadata = fake.metadata();
    metadata["introspection_endpoint"] = json!(format!("{}/moved", fake.url));
    fake.script(move |seen| match seen.line.as_str() {
        DISCOVERY => FakeReply::json(&metadata),
        "POST /moved" => active(seen),
        _ => FakeReply::Answer(404, "{}".into()),
    });
    assert_eq!(refusal(&oauth, "b"), down(1));
    hand.pass(1000);
    assert_eq!(refusal(&oauth, "b"), None);
}

#[test]
fn who_comes_at_once_shares_the_question_and_the_search_for_metadata() {
    for tokens in [1, 16] {
        let fake = Fake::new(active);
        let oauth = &oauth(&fake).0;
        thread::scope(|scope| {
            let come = |n| scope.spawn(move || refusal(oauth, &format!("t{}", n % tokens)));
            let all = Vec::from_iter((0..16).map(come));
            assert!(all.into_iter().all(|one| one.join().unwrap().is_none()));
        });
        let lines = fake.lines();
        let discoveries = lines.iter().filter(|line| *line == DISCOVERY).count();
        assert_eq!((lines.len(), discoveries), (1 + tokens, 1));
    }
}

#[test]
fn what_goes_on_never_asks_the_issuer_and_is_refreshed_before_its_minute_is_over() {
    let fake = Fake::new(|_| with("exp", json!(DATE + 130)));
    let (oauth, hand) = oauth(&fake);
    let (held, _) = check(&oauth, "t").unwrap();
    assert!(check(&oauth, "left").is_ok() && check(&oauth, "again").is_ok());
    fake.seen();
    let refreshed = || {
        oauth.refresh();
        fake.lines()
    };
    hand.pass(29_999);
    assert_eq!(refreshed(), [""; 0]);
    assert!(check(&oauth, "again").is_ok());
    hand.pass(1);
    assert_eq!(refreshed(), [QUESTION; 2], "what is held or comes again");
    hand.pass(59_999);
    // Whoever comes now does not ask, and the issuer may take its time.
    assert!(oauth.grant(&held, false).is_ok() && refusal(&oauth, "t").is_none());
    assert_eq!(fake.lines(), [""; 0]);
    assert_eq!(refreshed(), [QUESTION]);
    hand.pass(40_001);
    assert_eq!(oauth.grant(&held, false).err(), bad(Flaw::EXPIRED));
}

#[test]
fn what_the_issuer_refuses_is_refused_after_a_minute_however_many_tokens_are_held() {
    let fake = Fake::new(active);
    let (oauth, hand) = oauth(&fake);
    let hold = |n| check(&oauth, &format!("t{n}")).unwrap().0;
    let held = Vec::from_iter((0..300).map(hold));
    fake.script(fake.with_metadata(|_| FakeReply::json(&json!({"active": false}))));
    // The refresher has not come to them yet.
    hand.pass(60_000);
    let is_refused = |why| held.iter().all(|t| oauth.grant(t, false).err() == why);
    assert!(is_refused(down(1)), "that never asks");
    assert!(held.iter().all(|known| oauth.grant(known, true).is_ok()));
    assert_eq!(refusal(&oauth, "t7"), bad(Flaw::INACTIVE));
    oauth.refresh();
    assert!(is_refused(bad(Flaw::INACTIVE)) && fake.lines().len() == 601);
}

/// Lets the issuer tell that it is asked, and not answer until the other end is dropped.
fn hang(fake: &Fake) -> (Receiver<()>, Sender<()>) {
    let (asked, asks) = channel();
    let (goes_on, go_on) = channel::<()>();
    fake.script(move |_| {
        let _ = asked.send(());
        let _ = go_on.recv();
        FakeReply::Raw(Vec::new())
    });
    (asks, goes_on)
}

#[test]
fn an_issuer_that_hangs_holds_nobody_up_who_is_here() {
    let fake = Fake::new(active);
    let (oauth, hand) = oauth_within(&fake, Duration::from_secs(60));
    let (held, _) = check(&oauth, "t").unwrap();
    assert!(check(&oauth, "again").is_ok());
    let (asks, goes_on) = hang(&fake);
    hand.pass(59_000);
    assert!(check(&oauth, "again").is_ok());
    thread::scope(|scope| {
        let refresher = scope.spawn(|| oauth.refresh());
        asks.recv().unwrap();
        // The answer does not come before this is over.
        assert!(oauth.grant(&held, false).is_ok() && refusal(&oauth, "t").is_none());
        drop(goes_on);
        refresher.join().unwrap();
    });
    fake.lines();
    hand.pass(29_000);
    assert!(refusal(&oauth, "again").is_none() && fake.lines().is_empty());
}

#[test]
fn what_was_said_last_counts_through_a_short_outage_and_no_long_one() {
    let fake = Fake::new(active);
    let (oauth, hand) = oauth(&fake);
    let (held, _) = check(&oauth, "t").unwrap();
    assert!(check(&oauth, "left").is_ok());
    oauth.refresh();
    fake.script(|_| FakeReply::Raw(Vec::new()));
    hand.pass(60_000);
    oauth.refresh();
    let all = || {
        (
            oauth.grant(&held, false).is_ok(),
            refusal(&oauth, "left").is_none(),
        )
    };
    assert_eq!(all(), (true, true));
    assert!(refusal(&oauth, "new").is_some());
    hand.pass(59_999);
    oauth.refresh();
    assert_eq!(all(), (true, true));
    hand.pass(1);
    oauth.refresh();
    assert_eq!(all(), (false, false));
    fake.script(fake.with_metadata(active));
    hand.pass(30_000);
    oauth.refresh();
    assert_eq!(all(), (true, true), "it answers again");
}

#[test]
fn an_issuer_that_is_down_is_asked_in_ever_longer_steps() {
    let fake = Fake::new(active);
    let (oauth, hand) = oauth(&fake);
    assert_eq!(refusal(&oauth, "known"), None);
    fake.script(|_| FakeReply::Raw(Vec::new()));
    assert_eq!(refusal(&oauth, "first"), down(1));
    assert_eq!(fake.lines()[2..], [QUESTION]);
    for wait in [1, 2, 4, 8, 16, 30, 30] {
        assert_eq!(refusal(&oauth, "t"), down(wait));
        assert_eq!(fake.lines(), [DISCOVERY]);
        let shown = (refusal(&oauth, "other"), fake.lines().len());
        assert_eq!(shown, (down(wait), 0));
        if wait == 1 {
            let found = refusal(&oauth, "known");
            assert_eq!(found, None, "what was said before is good for its time");
        }
        hand.pass(wait * 1000);
    }
    fake.script(fake.with_metadata(active));
    let shown = (refusal(&oauth, "t"), refusal(&oauth, "other"));
    assert_eq!(shown, (None, None));
    // The pause begins at a second again.
    fake.script(|_| FakeReply::Raw(Vec::new()));
    let shown = (refusal(&oauth, "third"), refusal(&oauth, "fourth"));
    assert_eq!(shown, (down(1), down(1)));
}

#[test]
fn nobody_waits_for_an_issuer_that_has_failed() {
    let fake = Fake::bare();
    let (oauth, hand) = oauth_within(&fake, Duration::from_secs(10));
    assert_eq!(refusal(&oauth, "a"), down(1));
    hand.pass(1000);
    // While this one asks, others are refused at once.
    let (asks, goes_on) = hang(&fake);
    thread::scope(|scope| {
        let trial = scope.spawn(|| refusal(&oauth, "b"));
        asks.recv().unwrap();
        assert_eq!(refusal(&oauth, "c"), down(10));
        drop(goes_on);
        assert_eq!(trial.join().unwrap(), down(2));
    });
    assert_eq!(refusal(&oauth, "c"), down(2));
}

#[test]
fn what_has_begun_ends_when_its_token_is_revoked_or_is_another_one() {
    let inactive = Err(AccessError::BadToken(Flaw::INACTIVE));
    for (name, value, said) in [
        ("active", json!(false), inactive),
        ("scope", json!("fabric:read"), Ok(Role::Read)),
        ("scope", json!(""), Err(AccessError::Forbidden(Role::Read))),
        ("sub", json!("bob"), inactive),
    ] {
        let fake = Fake::new(active);
        let (oauth, hand) = oauth(&fake);
        let (held, before) = check(&oauth, "t").unwrap();
        // As a caller's role is told.
        let role = || match oauth.grant(&held, false)? {
            grant if grant.identity == before.identity => Ok(grant.role),
            _ => inactive,
        };
        fake.script(fake.with_metadata(move |_| with(name, value.clone())));
        hand.pass(29_999);
        oauth.refresh();
        assert_eq!(role(), Ok(Role::Run));
        hand.pass(1);
        oauth.refresh();
        assert_eq!(role(), said, "{name}");
        // An outage gives nothing back.
        fake.script(|_| FakeReply::Raw(Vec::new()));
        hand.pass(60_000);
        oauth.refresh();
        assert_eq!(role(), said, "{name}");
    }
}

#[test]
fn users_without_a_subject_are_refused_and_clients_are_not() {
    let (alice, al, app) = (Some("alice"), Some("al"), Some("app"));
    for (sub, username, client, identity) in [
        (alice, al, app, Ok("oauth:http://localhost/as#alice")),
        (None, al, app, Err(Flaw::NOBODY)),
        (None, al, None, Err(Flaw::NOBODY)),
        (None, None, app, Ok("oauth-client:http://localhost/as#app")),
        (app, None, app, Ok("oauth-client:http://localhost/as#app")),
        (None, None, None, Err(Flaw::NOBODY)),
    ] {
        let said = json!({"sub": sub, "username": username, "client_id": client});
        let found = judge(&said).map(|grant| grant.identity.to_string());
        let expected = identity.map(str::to_owned).map_err(AccessError::BadToken);
        assert_eq!(found, expected, "{said}");
    }
}

fn judge(change: &Value) -> Verdict {
    let mut answer = json!({
        "active": true, "aud": RESOURCE, "exp": DATE + 1, "iss": "http://localhost/as", "sub": "alice",
        "client_id": "app", "scope": "openid fabric:read", "token_type": "Bearer", "username": "x",
    });
    for (name, value) in change.as_object().unwrap() {
        answer[name] = value.clone();
    }
    let settings = OAuthSettings::of("http://localhost/as", "", "");
    super::judge(&answer, &settings, Duration::ZERO, DATE)
}

#[test]
fn a_good_token_says_whose_it_is_and_for_what() {
    let read = Grant {
        identity: Identity::oauth(false, "http://localhost/as", "alice"),
        role: Role::Read,
        expires: Some(DATE + 1),
        asked: Duration::ZERO,
    };
    for same in [
        json!({}),
        json!({"aud": ["http://localhost:8000/mcp"]}),
        json!({"aud": ["other", 5, "http://localhost:8000/mcp"]}),
        json!({"iss": null, "token_type": null, "client_id": null, "cnf": null}),
        json!({"token_type": "bearer"}),
        json!({"exp": DATE as f64 + 1.9}),
        json!({"exp": (DATE + 1).to_string()}),
    ] {
        assert_eq!(judge(&same), Ok(read.clone()), "{same}");
    }
    for (exp, expires) in [(json!(null), None), (json!(1e300), Some(i64::MAX))] {
        let read = read.clone();
        assert_eq!(judge(&json!({"exp": exp})), Ok(Grant { expires, ..read }));
    }
}

#[test]
fn anything_else_is_a_refusal() {
    for (change, flaw) in [
        (json!({"active": "true"}), Flaw::INACTIVE),
        (json!({"aud": null}), Flaw::AUDIENCE),
        (json!({"aud": {}}), Flaw::AUDIENCE),
        (json!({"aud": "http://localhost:8000"}), Flaw::AUDIENCE),
        (json!({"aud": "http://localhost:8000/mcp/"}), Flaw::AUDIENCE),
        (
            json!({"aud": ["http://localhost:8000/MCP"]}),
            Flaw::AUDIENCE,
        ),
        (json!({"iss": "http://localhost/as/"}), Flaw::ISSUER),
        (json!({"exp": DATE as f64 + 0.9}), Flaw::EXPIRED),
        (json!({"exp": "soon"}), Flaw::KIND),
        (json!({"token_type": "DPoP"}), Flaw::KIND),
        (json!({"cnf": {"jkt": "x"}}), Flaw::KIND),
        (json!({"sub": ""}), Flaw::NOBODY),
        (json!({"sub": "s".repeat(513)}), Flaw::NOBODY),
    ] {
        assert_eq!(judge(&change), Err(AccessError::BadToken(flaw)), "{change}");
    }
}

#[test]
fn scopes_are_whole_words() {
    let none = Err(AccessError::Forbidden(Role::Read));
    for (scope, role) in [
        ("fabric:run", Ok(Role::Run)),
        ("fabric:read fabric:run", Ok(Role::Run)),
        ("fabric:read", Ok(Role::Read)),
        ("", none),
        ("fabric", none),
        ("FABRIC:RUN", none),
        ("fabric:running", none),
        ("fabric:run\tfabric:read", none),
        ("openid,fabric:run", none),
    ] {
        let found = judge(&json!({"scope": scope})).map(|grant| grant.role);
        assert_eq!(found, role, "{scope}");
    }
    for scope in [json!(null), json!(["fabric:run"])] {
        let found = judge(&json!({"scope": scope})).map(|grant| grant.role);
        assert_eq!(found, none, "{scope}");
    }
}

#[test]
#[cfg(feature = "tls")]
fn an_issuer_elsewhere_does_not_lead_here() {
    let read = |issuer: &str, endpoint: &str| {
        let oauth = OAuth::new(OAuthSettings::of(issuer, "", "")).unwrap();
        let metadata = json!({"issuer": issuer, "introspection_endpoint": endpoint});
        let found = oauth.read_metadata(metadata.to_string().as_bytes());
        found.map(|(url, _)| url.as_str().to_owned())
    };
    let (elsewhere, here) = ("https://as.example", "http://localhost");
    for (issuer, endpoint) in [
        (elsewhere, "https://other.example/introspect"),
        (elsewhere, "https://as.example:8443/i"),
        (elsewhere, "https://10.0.0.1/i"),
        (here, "http://localhost:9/i"),
        (here, "http://[::1]:9/i"),
        (here, "https://as.example/i"),
        ("https://127.0.0.1", "https://localhost/i"),
    ] {
        assert_eq!(read(issuer, endpoint).as_deref(), Ok(endpoint));
    }
    let insecure = "names an introspection endpoint without https";
    let local = "names an introspection endpoint on this machine, not its own";
    for (endpoint, why) in [
        ("http://127.0.0.1:8080/i", insecure),
        ("https://127.0.0.1/i", local),
        ("https://127.9.9.9/i", local),
        ("https://[::1]/i", local),
        ("https://[::ffff:127.0.0.1]/i", local),
        ("https://LocalHost/i", local),
        ("https://localhost./i", local),
        ("https://a.localhost/i", local),
        ("https://0.0.0.0/i", local),
        ("https://[::]/i", local),
        ("https://[::ffff:0.0.0.0]/i", local),
    ] {
        assert_eq!(read(elsewhere, endpoint).unwrap_err(), why, "{endpoint}");
    }
    assert!(read(elsewhere, "http://as.example/i").is_err());
    assert!(read(here, "http://as.example/i").is_err());
}

#[test]
fn metadata_is_looked_for_in_this_order() {
    for path in ["", "/"] {
        let fake = Fake::bare();
        let settings = OAuthSettings::of(&format!("{}{path}", fake.url), "", "");
        assert!(OAuth::new(settings).unwrap().probe().is_err());
        let expected = ["oauth-authorization-server", "openid-configuration"]
            .map(|name| format!("GET /.well-known/{name}"));
        assert_eq!(fake.lines(), expected, "{path}");
    }
}

fn resource(url: &str) -> OAuth {
    let settings = OAuthSettings {
        resource: WebUrl::parse(url).unwrap(),
        ..OAuthSettings::of("http://localhost:9/t/", "", "")
    };
    OAuth::new(settings).unwrap()
}

#[test]
fn the_document_is_served_by_each_name_of_the_endpoint() {
    let resource = resource("http://localhost/team/mcp");
    let expected = r#"{"authorization_servers":["http://localhost:9/t/"],"bearer_methods_supported":["header"],"resource":"http://localhost/team/mcp","resource_name":"fabric-mcp","scopes_supported":["fabric:read","fabric:run"]}"#;
    for path in ["", "/", "/team/mcp", "/mcp"] {
        let text = format!("/.well-known/oauth-protected-resource{path}");
        let document = resource.document(&text, "/mcp");
        assert_eq!(document.as_deref(), Some(expected.as_bytes()), "{path}");
    }
    let all = "/.well-known/oauth-protected-resource/other \
        /.well-known/oauth-protected-resource/mcp/ /.well-known/oauth-protected-resources \
        /.well-known/oauth-authorization-server /mcp";
    for path in all.split(' ') {
        assert_eq!(resource.document(path, "/mcp"), None, "{path}");
    }
}

#[test]
fn challenges_lead_to_the_document() {
    let url = "resource_metadata=\"http://localhost/.well-known/oauth-protected-resource";
    let mcp = resource("http://localhost/mcp");
    let all = "scope=\"fabric:read fabric:run\"";
    let found = mcp.challenge(AccessError::NoToken);
    assert_eq!(found, Some(format!("Bearer {url}/mcp\", {all}")));
    let found = resource("http://localhost/").challenge(AccessError::NoToken);
    assert_eq!(found, Some(format!("Bearer {url}\", {all}")));
    let wanted = Some(format!(
        "Bearer {url}/mcp\", {all}, error=\"invalid_token\", error_description=\"the token has expired\""
    ));
    assert_eq!(mcp.challenge(AccessError::BadToken(Flaw::EXPIRED)), wanted);
    let expected = Some(format!(
        "Bearer {url}/mcp\", scope=\"fabric:run\", error=\"insufficient_scope\", \
         error_description=\"the token lacks the scope\""
    ));
    assert_eq!(mcp.challenge(AccessError::Forbidden(Role::Run)), expected);
    let found = mcp.challenge(AccessError::Unavailable(Duration::ZERO));
    assert_eq!(found, None);
}

#[test]
fn strangers_at_one_address_keep_nobody_else_out() {
    let fake = Fake::new(active);
    let (oauth, hand) = oauth_within(&fake, Duration::from_secs(1800));
    assert_eq!(refusal(&oauth, "known"), None);
    hand.pass(61_000);
    let take = |oauth: &OAuth, n, what| -> Vec<_> {
        let strangers = oauth.strangers.of(peer(n));
        std::iter::from_fn(|| strangers.take(what, 1).ok()).collect()
    };
    let asking = take(&oauth, 1, Resource::Calls);
    let waiting = take(&oauth, 1, Resource::Waits);
    assert_eq!((asking.len(), waiting.len()), (48, 192));
    // This one would wait for an hour.
    assert_eq!(refusal(&oauth, "another"), down(1));
    let elsewhere = oauth.check(
        ("new", fingerprint("new")),
        peer(2),
        &Accounts::alone(1),
        &|| true,
    );
    assert!(elsewhere.is_ok() && refusal(&oauth, "known").is_none());
    hand.pass(3_600_000);
    assert_eq!(refusal(&oauth, "known"), down(1), "unknown again");
    drop(waiting);
    fake.seen();
    let (oauth, _) = oauth_within(&fake, Duration::from_millis(1));
    let _all: Vec<_> = (2..9).map(|n| take(&oauth, n, Resource::Calls)).collect();
    assert_eq!(refusal(&oauth, "another"), down(1), "its time is over");
    assert_eq!(fake.lines(), [""; 0]);
}

#[test]
fn memory_is_bounded_and_refusals_go_first() {
    let mut answers = Answers::default();
    let (now, refusal) = (Duration::ZERO, Err(AccessError::NoToken));
    let good = Fake::new(active);
    let good = check(&oauth(&good).0, "t").unwrap().1;
    let keep = |answers: &mut Answers, digest, verdict: &Verdict| {
        let known = answers.entry([digest, 0], good.asked);
        lock(&known.last).keep(GRANT_HOLDS, verdict.clone(), good.asked);
        known
    };
    let has = |answers: &Answers, digest| answers.find([digest, 0], now).0.is_some();
    // What a caller holds stays, however long it has been there.
    let _held = keep(&mut answers, u128::MAX, &refusal);
    let half = MAX_ANSWERS as u128 / 2;
    for digest in 1..2 * half {
        let verdict = if digest < half {
            &Ok(good.clone())
        } else {
            &refusal
        };
        keep(&mut answers, digest, verdict);
    }
    assert_eq!(answers.0.len(), MAX_ANSWERS);
    keep(&mut answers, 99_999, &refusal);
    assert_eq!(answers.0.len() as u128, half + 1);
    assert!(!has(&answers, half) && has(&answers, half - 1));
    for digest in 100_000..110_000 {
        keep(&mut answers, digest, &Ok(good.clone()));
        assert!(answers.0.len() <= MAX_ANSWERS && has(&answers, digest));
    }
    assert!(answers.0.contains_key(&[u128::MAX, 0]));
}
