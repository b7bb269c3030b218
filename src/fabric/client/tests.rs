use super::super::fixture::settings;
use super::*;

#[test]
fn invalid_settings_are_start_up_errors_that_name_the_variable() {
    let refused = |settings: config::Fabric| Client::new(&settings).err().unwrap();
    assert!(refused(settings("no url")).starts_with("FABRIC_BASE_URL "));
    assert!(refused(settings("/path")).starts_with("FABRIC_BASE_URL "));
    let key = Some(config::Secret::new("two\nlines"));
    let error = refused(config::Fabric {
        api_key: key,
        ..settings("http://h")
    });
    let is_so = error.starts_with("FABRIC_API_KEY ") && !error.contains("two");
    assert!(is_so, "{error}");
}

#[cfg(not(feature = "tls"))]
#[test]
fn https_needs_a_build_with_tls() {
    assert!(
        Client::new(&settings("https://h"))
            .is_err_and(|why| why.starts_with("FABRIC_BASE_URL is https"))
    );
}

/// What becomes of a failed run.
fn failed(as_error: impl FnOnce(Attempt<'_>) -> Error) -> Error {
    let client = Client::new(&settings("http://h:1")).unwrap();
    let observer: Observer = Arc::new(crate::fabric::Unobserved);
    as_error(Attempt {
        client: &client,
        request: &FabricRequest {
            method: "GET",
            path: "/x".into(),
            limit: Limit::Run,
        },
        begun: Instant::now(),
        observer: &observer,
    })
}

#[test]
fn every_status_has_its_kind() {
    for (kind, statuses) in [
        (Kind::ApiUnauthorized, &[401, 403][..]),
        (Kind::ApiUnavailable, &[502, 503, 504, 522]),
        (Kind::FabricInternal, &[500, 501, 505, 529, 599]),
        (Kind::ApiError, &[429, 400, 404, 413, 301, 204]),
    ] {
        for status in statuses {
            let error = failed(|call| call.status_error(*status, &HeaderMap::new()));
            assert_eq!(error.kind, kind, "{status}");
        }
    }
}
