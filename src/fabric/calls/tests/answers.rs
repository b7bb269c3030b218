//! Invalid responses, and the errors for them.

use super::*;

impl Client {
    /// Checks a run, then sends it.
    pub(super) fn chat(
        &self,
        request: Chat,
        wait: &Arc<dyn Wait>,
        each: &mut dyn FnMut(Event) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.run(self.check(request, wait)?, wait, each)
    }
}

#[test]
fn json_in_place_of_a_stream_is_one_event() {
    let error = failed_run(&Fixture::always(json(
        "{\"type\":\"error\",\"content\":\"no model\"}",
    )));
    assert!(
        error.kind == Kind::ApiError && error.detail.ends_with("no model"),
        "{error}"
    );
    let (text, _, end) =
        run(&Fixture::always(json("{\"type\":\"content\",\"content\":\"a\"}")).client());
    assert_eq!((text.as_str(), end), ("a", Ok(())));
    let error = failed_run(&Fixture::always(json("\"s\"")));
    assert_eq!(
        (error.kind, error.cause, error.status),
        (Kind::ApiError, Some(Cause::NotFabric), Some(200))
    );
    assert!(
        error
            .detail
            .contains(" answers POST /chat with something that is not Fabric's: "),
        "{error}"
    );
}

#[test]
fn a_request_that_cannot_be_sent_in_time_is_no_silent_run() {
    // Nobody accepts: the connection is established in the listen queue, but the request is never read.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let limits = config::Fabric {
        request_timeout: Duration::from_millis(300),
        ..settings(&url)
    };
    let end = quick(&limits).chat(
        Chat::new(name("p"), "x".repeat(32 << 20)),
        &no_wait(),
        &mut |_| Ok(()),
    );
    assert_eq!(end.unwrap_err().kind, Kind::ApiUnavailable);
}

#[test]
fn only_a_500_means_that_there_is_no_folder_of_strategies() {
    for (answer, end) in [
        (
            status(
                "500 X",
                "{\"error\":\"Failed to read strategies directory\"}",
            ),
            Ok(None),
        ),
        (json("null"), Ok(Some(Vec::new()))),
        (
            status("501 X", "{}"),
            Err((Kind::FabricInternal, Some(501))),
        ),
        (status("404 X", "{}"), Err((Kind::ApiError, Some(404)))),
        (
            status("401 X", "{}"),
            Err((Kind::ApiUnauthorized, Some(401))),
        ),
        (json("{}"), Err((Kind::ApiError, Some(200)))),
    ] {
        let result = Fixture::always(answer.clone())
            .client()
            .strategies(&no_wait());
        assert_eq!(
            result.map_err(|error| (error.kind, error.status)),
            end,
            "{answer}"
        );
    }
}
