//! Transcripts of YouTube videos: the video that a URL names, Fabric's response, and what its failures mean.
//!
//! Fabric passes parts of a URL to yt-dlp, a program on its host. So Fabric gets a URL that is built here from the
//! video's ID, and nothing that the caller wrote.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Cached, Client, Error, Kind, sanitize};
use crate::encoding::json::decode;
use crate::sync::lock;
use crate::url::split;

/// The end of every error about a URL.
const GIVE: &str = "give the address of one video, such as \
    https://www.youtube.com/watch?v=VIDEO_ID or https://youtu.be/VIDEO_ID.";

/// The explanation for a video without a transcript.
pub(super) const NO_TRANSCRIPT: &str = "YouTube gave Fabric no transcript of this video: the \
    video may have none, or may not be public. Try another language or video; if every video \
    fails, update yt-dlp on Fabric's host, and check that this host can reach YouTube.";

/// YouTube pages that look like IDs: a playlist, and a channel's live stream.
const NOT_IDS: [&str; 2] = ["videoseries", "live_stream"];

/// The ID of a video: 11 letters of base64url.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VideoId(String);

impl VideoId {
    /// Reads the URL of one video at youtube.com, youtu.be or their subdomains. The error is [`Kind::InvalidRequest`],
    /// begins with `field` and quotes nothing of `url`.
    pub(crate) fn parse(field: &str, url: &str) -> Result<VideoId, Error> {
        VideoId::read(url)
            .map_err(|why| Error::new(Kind::InvalidRequest, format!("`{field}` {why}: {GIVE}")))
    }

    fn read(url: &str) -> Result<VideoId, &'static str> {
        if url.is_empty() {
            return Err("is missing");
        }
        if !url.bytes().all(|b| b.is_ascii_graphic() && b != b'\\') {
            return Err("has blanks or characters that no address has");
        }
        let whole = format!("https://{url}");
        let url = if url.contains(':') { url } else { &whole };
        let (scheme, host, rest) = split(url).unwrap_or_default();
        if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) {
            return Err("does not begin with https:// or http://");
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.trim_matches('/');
        // No video has a port or user-info before it.
        let host = host.to_ascii_lowercase();
        let id = if is_at(&host, "youtu.be") {
            Some(path)
        } else if is_at(&host, "youtube.com") || is_at(&host, "youtube-nocookie.com") {
            let mut ids = parameters(query, "v");
            match path.split_once('/') {
                // Several values are ambiguous.
                None if path == "watch" => ids.next().filter(|_| ids.next().is_none()),
                Some(("shorts" | "live" | "embed" | "v" | "e", id)) => Some(id),
                _ => None,
            }
        } else {
            return Err("is not at youtube.com or youtu.be");
        };
        let is_letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let is_id =
            |id: &&str| id.len() == 11 && id.bytes().all(is_letter) && !NOT_IDS.contains(id);
        match id.filter(is_id) {
            Some(id) => Ok(VideoId(id.to_owned())),
            None if parameters(query, "list").next().is_some() => {
                Err("names a playlist and no video")
            }
            None => Err("does not name one video"),
        }
    }

    /// The ID alone.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The URL from which every Fabric version reads this ID.
    pub(super) fn url(&self) -> String {
        format!("https://www.youtube.com/watch?v={}", self.0)
    }
}

/// The values of a query parameter.
fn parameters<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(move |pair| pair.0 == name).map(|pair| pair.1)
}

/// Is `host` this domain or a subdomain?
fn is_at(host: &str, domain: &str) -> bool {
    let below = host.strip_suffix(domain);
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
    let is_label = |below: &str| below.ends_with('.') && below.bytes().all(is_letter);
    below.is_some_and(|below| below.is_empty() || is_label(below))
}

/// Fabric's response for a video.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Transcript {
    /// The text; with timestamps, one line each.
    pub(crate) transcript: String,
    /// Without a YouTube key, Fabric puts the ID here.
    pub(crate) title: Option<String>,
    /// Fabric sends this only with a key, and in newer versions.
    pub(crate) description: Option<String>,
}

/// The videos whose transcripts are wanted now.
pub(super) type Downloads = Mutex<Vec<(VideoId, Weak<Download>)>>;

/// A request for a transcript, and Fabric's answer.
pub(super) type Fetched = (Vec<u8>, Result<Transcript, Error>);

/// The latest transcripts of one video, for all callers that want one of them at the same time: in several languages, or with
/// times. Fabric has one folder for a video, and the first request to end removes it, so a second request at the same
/// time would fail.
pub(crate) type Download = Cached<Vec<Arc<Fetched>>>;

impl Client {
    /// The download of a video, held by all callers that wait for its transcript.
    pub(crate) fn download(&self, video: &VideoId) -> Arc<Download> {
        let mut downloads = lock(&self.downloads);
        downloads.retain(|(_, download)| download.strong_count() > 0);
        let mut known = downloads.iter().filter(|(known, _)| known == video);
        if let Some(download) = known.find_map(|(_, download)| download.upgrade()) {
            return download;
        }
        let download = Arc::new(Download::new(Duration::MAX));
        downloads.push((video.clone(), Arc::downgrade(&download)));
        download
    }
}

/// Adds detail to the `error` of a request for a transcript, from the response body.
///
/// Fabric's messages are in the language of its host, so this looks for what is the same in all of them: names of
/// programs, their options and formats.
pub(super) fn transcript_error(error: Error, body: &[u8]) -> Error {
    let status = error.status.unwrap_or_default();
    let because = |kind, detail: &str| Error {
        kind,
        detail: detail.to_owned(),
        ..error.clone()
    };
    if status == 404 && body.starts_with(b"404 page not found") {
        return because(
            Kind::ApiError,
            "This version of Fabric is too old to get transcripts (HTTP 404), or the path in \
             FABRIC_BASE_URL is wrong. Update Fabric on its host.",
        );
    }
    let said: Value = match status {
        400 | 500 => decode(body).unwrap_or_default(),
        _ => Value::Null,
    };
    let Some(said) = said["error"].as_str() else {
        return error;
    };
    let has = |mark| said.contains(mark);
    // Older versions quote yt-dlp, which may contain any word.
    let is_quote = said.starts_with("yt-dlp failed");
    let known = [
        (
            has("--sleep-requests") || has("Too Many Requests"),
            Kind::ApiError,
            "YouTube accepts no more requests from Fabric's host for now. Try again in a few minutes.",
        ),
        (
            has("--cookies-from-browser"),
            Kind::ApiError,
            "YouTube wants Fabric's host to sign in: YouTube takes that host for a robot, or does \
             not show this video to everybody. Try another video; cookies can be given in \
             yt-dlp's own configuration on Fabric's host.",
        ),
        (
            !is_quote && has("yt-dlp") && has("PATH"),
            Kind::FabricInternal,
            "Fabric needs yt-dlp to get transcripts, and does not find it on its host: install \
             yt-dlp there, in the PATH of `fabric --serve`.",
        ),
        (!is_quote && has("VTT"), Kind::ApiError, NO_TRANSCRIPT),
        (
            has("googleapi:") || (has("API") && has("fabric --setup")),
            Kind::FabricInternal,
            "Fabric has no YouTube API key that works, and this version gets no transcript \
             without a key: give it a key with `fabric --setup` on its host, or update Fabric.",
        ),
    ];
    if let Some((_, kind, detail)) = known.into_iter().find(|(is_it, ..)| *is_it) {
        return because(kind, detail);
    }
    let detail = format!(
        "Fabric could not get the transcript (HTTP {status}): perhaps the video is not public, \
         yt-dlp on Fabric's host needs an update, or Fabric was still fetching the transcript for \
         another call. In that last case, try again in a minute. Fabric's reason: {}",
        sanitize(said)
    );
    because(Kind::ApiError, &detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::fixture::settings;

    const ID: &str = "abc-DEF_123";

    #[test]
    fn who_wants_a_video_at_the_same_time_shares_its_download() {
        let [video, other] = [ID, "12345678901"].map(|id| VideoId(id.to_owned()));
        let client = Client::new(&settings("http://h")).unwrap();
        let first = client.download(&video);
        assert!(Arc::ptr_eq(&first, &client.download(&video)));
        assert!(!Arc::ptr_eq(&first, &client.download(&other)));
        drop(first);
        let _again = client.download(&video);
        assert_eq!(lock(&client.downloads).len(), 1);
    }

    #[test]
    fn an_address_of_one_video_is_its_id() {
        let all = "https://www.youtube.com/watch?v=ID \
            http://youtube.com/watch?v=ID&list=PL1&index=2 \
            HTTPS://M.YouTube.COM/watch?feature=youtu.be%20&v=ID&t=1m2s#top \
            https://music.youtube.com/watch/?v=ID https://youtu.be/ID \
            https://www.youtu.be/ID/?si=x&t=5 https://youtube.com/shorts/ID?x \
            https://www.youtube.com/live/ID/ https://www.youtube.com/embed/ID?start=1 \
            https://www.youtube-nocookie.com/embed/ID \
            https://www.youtube.com/v/ID https://www.youtube.com/e/ID youtu.be/ID youtube.com/watch?v=ID";
        for url in all.split(' ') {
            let id = VideoId::parse("url", &url.replace("ID", ID)).unwrap();
            assert_eq!(id.as_str(), ID, "{url}");
        }
        let dashed = VideoId::parse("url", "https://youtu.be/--exec=rm_x").unwrap_err();
        let part = "does not name one video";
        assert!(dashed.detail.contains(part), "{dashed}");
        let dashed = VideoId::parse("url", "https://youtu.be/--exec-rm_x").unwrap();
        assert_eq!(dashed.url(), "https://www.youtube.com/watch?v=--exec-rm_x");
    }

    #[test]
    fn everything_else_is_refused_and_says_what_is_expected() {
        const CHARACTERS: &str = "has blanks or characters that no address has";
        const SCHEME: &str = "does not begin with https:// or http://";
        const HOST: &str = "is not at youtube.com or youtu.be";
        const PLAYLIST: &str = "names a playlist and no video";
        const VIDEO: &str = "does not name one video";
        const SERIES: &str = "https://www.youtube.com/embed/videoseries?list=PL1";
        const REDIRECT: &str = "https://www.youtube.com/redirect?q=https://youtu.be/ID";
        for (url, why) in [
            (" https://youtu.be/ID", CHARACTERS),
            ("https://evil.org\\@youtu.be/ID", CHARACTERS),
            ("https://yоutu.be/ID", CHARACTERS),
            ("", "is missing"),
            ("--exec=x", HOST),
            ("javascript:https://youtu.be/ID", SCHEME),
            ("https://youtube.com.evil.org/watch?v=ID", HOST),
            ("https://evil.org/https://youtu.be/ID", HOST),
            ("https://evil.org#@youtu.be/ID", HOST),
            ("https://evilyoutube.com/watch?v=ID", HOST),
            ("https://user:x@www.youtube.com/watch?v=ID", HOST),
            ("https://youtube.com:443/watch?v=ID", HOST),
            ("https://youtube.com./watch?v=ID", HOST),
            ("https://%77ww.youtube.com/watch?v=ID", HOST),
            ("https://www.youtube.com/playlist?list=PL1", PLAYLIST),
            ("https://www.youtube.com/watch?list=PL1", PLAYLIST),
            (SERIES, PLAYLIST),
            ("https://www.youtube.com/embed/live_stream?channel=x", VIDEO),
            ("https://www.youtube.com", VIDEO),
            ("https://youtu.be/", VIDEO),
            ("https://youtu.be/ID/x", VIDEO),
            ("https://youtu.be/short", VIDEO),
            ("https://youtu.be/abc%2DEF_123", VIDEO),
            ("https://www.youtube.com/watch?v=", VIDEO),
            ("https://www.youtube.com/watch?v=ID&v=ID", VIDEO),
            ("https://www.youtube.com/watch#?v=ID", VIDEO),
            (REDIRECT, VIDEO),
        ] {
            let error = VideoId::parse("url", &url.replace("ID", ID)).unwrap_err();
            assert_eq!(error.kind, Kind::InvalidRequest, "{url:?}");
            assert_eq!(error.detail, format!("`url` {why}: {GIVE}"), "{url:?}");
        }
    }

    fn explained(status: u16, body: &str) -> (Kind, String) {
        let error = Error::new(Kind::Internal, "generic").after_status(status);
        let error = transcript_error(error, body.as_bytes());
        assert_eq!(error.status, Some(status));
        (error.kind, error.detail)
    }

    #[test]
    fn failures_are_told_apart_in_every_language_of_fabric() {
        let no_tool = "needs yt-dlp to get transcripts";
        let none = "gave Fabric no transcript of this video";
        let key = "no YouTube API key that works";
        let (busy, robot) = ("accepts no more requests", "wants Fabric's host to sign in");
        let (quoted, masked) = ("Fabric's reason: ", "mkdir [path]: permission");
        let (internal, api) = (Kind::FabricInternal, Kind::ApiError);
        for (said, kind, words) in [
            ("yt-dlp not found in PATH. Please", internal, no_tool),
            ("在 PATH 中未找到 yt-dlp。", internal, no_tool),
            ("no VTT files found in directory", api, none),
            ("VTTファイルに", api, none),
            ("limite ; '--sleep-requests 1'", api, busy),
            ("--yt-dlp-args='--cookies-from-browser B'", api, robot),
            ("YouTube API erforderlich 'fabric --setup'", internal, key),
            ("googleapi: Error 400: API key not valid.", internal, key),
            ("yt-dlp failed with 'en': no VTT in PATH", api, quoted),
            ("mkdir /tmp/x: permission denied", api, masked),
        ] {
            let (got, detail) = explained(500, &serde_json::json!({ "error": said }).to_string());
            let is_so = got == kind && detail.contains(words);
            assert!(is_so, "{said}: {got:?} {detail}");
        }
    }

    #[test]
    fn only_fabrics_own_text_is_interpreted() {
        let old = explained(404, "404 page not found");
        let is_so = old.0 == Kind::ApiError && old.1.contains("too old");
        assert!(is_so, "{old:?}");
        let generic = (Kind::Internal, "generic".to_owned());
        for (status, body) in [
            (404, "{\"error\":\"VTT\"}"),
            (404, "nothing here"),
            (401, "{\"error\":\"VTT\"}"),
            (502, "{\"error\":\"VTT\"}"),
            (500, "VTT"),
            (500, "\"VTT\""),
            (500, "{\"error\":5}"),
            (500, ""),
            (500, "{\"error\":\"VT"),
        ] {
            assert_eq!(explained(status, body), generic, "{status} {body}");
        }
    }
}
