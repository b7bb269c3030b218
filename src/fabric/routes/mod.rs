//! The requests to Fabric, and what their responses mean.
//!
//! In scope: every route in use, the response formats of all Fabric versions, and the result of a run's events. Not in
//! scope: HTTP (`client`) and framing (`events`).

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::{MAX_RUN_OUTPUT, MAX_VARIABLES};
use crate::encoding::json::decode;
use crate::encoding::percent::percent_encode;
use crate::search;
use crate::table::table;
use crate::text;

use super::client::{FabricResponse, Limit, pause};
use super::events::{self, Decoder, Each};
use super::types::can_be_given;
use super::youtube::{Download, Fetched};
use super::{
    Cause, Chat, Client, Error, Event, Kind, Models, Name, NameList, Observer, Pattern, Place,
    Strategy, Transcript, VideoId, names, sanitize, template, youtube,
};

/// Delays before retries of an empty list of models, in milliseconds: Fabric may be querying the vendors for another
/// caller.
const EMPTY_MODELS_DELAYS: [u64; 3] = [250, 500, 1000];

/// How long a name that was not on the list counts as missing: for a Fabric, and for folders. Folders can be asked for
/// one pattern, and listing 10,000 patterns takes some 100 ms.
const MISSING: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// Read buffer of a run, in bytes.
const READ: usize = 4 << 10;
/// Transcripts of one video that are kept while somebody waits for one of them.
const VARIANTS: usize = 4;
/// Patterns suggested for an unknown name.
const MOST_FOUND: usize = 5;

table! {
    /// A route of Fabric that is in use: its method, its path, where `{name}` stands for a pattern's, and the limit of its
    /// time.
    Route: (&'static str, &'static str, Limit) as row {
        /// The names of all patterns.
        PatternNames = ("GET", "/patterns/names", Limit::Request);
        /// A pattern. Before 1.4.429, not one of a custom folder.
        Pattern = ("GET", "/patterns/{name}", Limit::Request);
        /// A pattern as a run sends it. May run plugins.
        Apply = ("POST", "/patterns/{name}/apply", Limit::Request);
        /// The names of all models, by vendor: the first time, Fabric asks every vendor.
        Models = ("GET", "/models/names", Limit::Models);
        /// The strategies with their texts. A 500 means that there is no such folder.
        Strategies = ("GET", "/strategies", Limit::Request);
        /// The configuration, with vendors' keys in plain text.
        Configuration = ("GET", "/config", Limit::Request);
        /// The names of the contexts. A 500 means that there is no such folder.
        Contexts = ("GET", "/contexts/names", Limit::Request);
        /// The names of the sessions. A 500 means that there is no such folder.
        Sessions = ("GET", "/sessions/names", Limit::Request);
        /// The transcript of a video: starts yt-dlp on Fabric's host.
        Transcript = ("POST", "/youtube/transcript", Limit::Transcript);
        /// A run.
        Chat = ("POST", "/chat", Limit::Run);
    }
}

/// A request to Fabric.
pub(super) struct FabricRequest {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) limit: Limit,
}

impl FabricRequest {
    /// The error in the words of its cause, with these values besides its own.
    pub(super) fn error(&self, url: &str, cause: Cause, more: &[(&str, &str)]) -> Error {
        let request = self.line();
        let own = [("url", url), ("request", &*request)];
        Error::of(cause, &[&own, more].concat())
    }

    /// Its method and path.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

impl Route {
    /// The request of a pattern's route.
    fn of(self, name: &Name) -> FabricRequest {
        let (method, path, limit) = self.row();
        let path = path.replace("{name}", &percent_encode(name.as_str()));
        FabricRequest {
            method,
            path,
            limit,
        }
    }

    /// Its method and path, with `{name}` as it is.
    #[cfg(test)]
    pub(crate) fn line(self) -> String {
        let (method, path, _) = self.row();
        format!("{method} {path}")
    }

    /// The request of a route without a name in it.
    fn request(self) -> FabricRequest {
        self.of(&Name::default())
    }
}

impl Client {
    /// `GET /patterns/names`: the names of all patterns, from a read that began at most `max_age` ago, one for all callers.
    pub(crate) fn names(
        &self,
        max_age: Duration,
        observer: &Observer,
    ) -> Result<Arc<NameList>, Error> {
        let mut changed = false;
        let read = self.listed.get(max_age, observer.as_ref(), || {
            let before = self.cached_names();
            let same = |body: &[u8]| before.clone().filter(|same| same.body == body);
            let names = self.read(Route::PatternNames.request(), observer, |body| {
                same(&body).or_else(|| NameList::read(body).map(Arc::new))
            })?;
            changed = before.is_some_and(|before| before != names);
            Ok(names)
        });
        // Not during the read, because the hook must see the new list.
        if changed && let Some(hook) = self.on_change.get() {
            hook();
        }
        read
    }

    /// The names of the last read, of any age. Sends no request.
    pub(crate) fn cached_names(&self) -> Option<Arc<NameList>> {
        self.listed.latest(None)
    }

    /// Sets the hook for a changed list of names; the first list is not a change. It runs on the reading thread and must
    /// neither block nor ask Fabric. Only the first hook is kept.
    pub(crate) fn on_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_change.set(Box::new(hook));
    }

    /// `GET /patterns/:name`.
    pub(crate) fn fetch_pattern(&self, name: &Name, observer: &Observer) -> Result<Pattern, Error> {
        let read = |body: Vec<u8>| Pattern::from_body(&body, name);
        self.read(Route::Pattern.of(name), observer, read)
    }

    /// `GET /strategies`, sorted by name. A 500 means that there is no such folder: see [`Cause::NoStrategies`].
    pub(crate) fn strategies(&self, observer: &Observer) -> Result<Option<Vec<Strategy>>, Error> {
        unless_500(self.read(Route::Strategies.request(), observer, |body| {
            // Go writes an empty list as `null`.
            let mut strategies = decode::<Option<Vec<Strategy>>>(&body)?.unwrap_or_default();
            strategies.retain(|one| Name::parse("", &one.name).is_ok());
            strategies.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            Some(strategies)
        }))
    }

    /// `GET /models/names`. The first time, Fabric asks every vendor, so this has its own timeout.
    ///
    /// Meanwhile it returns an empty list to every other caller (seen up to 1.4.470), so an empty list is requested
    /// again after each of [`EMPTY_MODELS_DELAYS`].
    pub(crate) fn models(&self, observer: &Observer) -> Result<Models, Error> {
        let mut delays = EMPTY_MODELS_DELAYS.map(Duration::from_millis).into_iter();
        loop {
            let read = unless_500(self.read(Route::Models.request(), observer, |body| {
                serde_json::from_value(members(&body)?.into()).ok()
            }))?;
            // Every version answers so without a vendor.
            let models: Models =
                read.ok_or_else(|| Error::of(Cause::NoVendor, &[]).after_status(500))?;
            match delays.next() {
                Some(delay) if models == Models::default() => pause(delay, observer.as_ref())?,
                _ => {
                    // Fabric keeps the list that it made first, even if a vendor begins to answer later.
                    let own = self.process.as_ref().filter(|_| models.models.is_empty());
                    own.inspect(|process| process.retire());
                    return Ok(models);
                }
            }
        }
    }

    /// The names of what is stored, contexts or sessions. `None` on a 500, which means that there is no such folder.
    pub(crate) fn stored(
        &self,
        route: Route,
        observer: &Observer,
    ) -> Result<Option<NameList>, Error> {
        unless_500(self.read(route.request(), observer, NameList::read))
    }

    /// `GET /patterns/:name`. A pattern that is not on the list of names is [`Kind::PatternNotFound`].
    pub(crate) fn pattern(&self, name: &Name, observer: &Observer) -> Result<Pattern, Error> {
        self.fetch_pattern(name, observer)
            .map_err(|error| self.or_not_found(name, error, observer))
    }

    /// `POST /patterns/:name/apply`: the pattern as a run sends it, with the step's input and variables filled in. Not
    /// retried: rendering may run plugins. Validated like a run.
    pub(crate) fn apply(&self, step: &Chat, observer: &Observer) -> Result<Pattern, Error> {
        self.guard(step, observer)?;
        let (name, variables) = (&step.pattern, &step.variables);
        let request = Route::Apply.of(name);
        let body = encode(
            &json!({"input": step.input, "variables": variables}),
            observer,
        )?;
        self.post(&request, body, observer)
            .and_then(FabricResponse::into_bytes)
            .and_then(|body| {
                Pattern::from_body(&body, name).ok_or_else(|| self.unexpected(&request))
            })
            .map_err(|error| self.or_not_found(name, error, observer))
    }

    /// `GET /config` as received, **with vendors' keys in plain text**: redact it before showing any of it.
    pub(crate) fn configuration(&self, observer: &Observer) -> Result<Map<String, Value>, Error> {
        let members = |body: Vec<u8>| members(&body);
        self.read(Route::Configuration.request(), observer, members)
    }

    /// `POST /youtube/transcript`, sent once for all callers that want the same transcript at the same time, because it
    /// starts yt-dlp on Fabric's host. Uses the timeout of the list of models.
    pub(crate) fn transcript(
        &self,
        (video, download): (&VideoId, &Download),
        language: Option<&str>,
        timestamps: bool,
        observer: &Observer,
    ) -> Result<Arc<Fetched>, Error> {
        let mut body = json!({"url": video.url(), "timestamps": timestamps});
        // Without a language, Fabric takes English, so both are the same request.
        if let Some(language) = language.filter(|code| *code != "en") {
            body["language"] = language.into();
        }
        let body = encode(&body, observer)?;
        let of = |all: &[Arc<Fetched>]| all.iter().find(|found| found.0 == body).cloned();
        let mut max_age = Duration::MAX;
        loop {
            let fetch = || {
                let all = download.latest(None);
                let mut all = all.map_or(Vec::new(), Arc::unwrap_or_clone);
                if of(&all).is_none() {
                    // A failure is shared as well.
                    let found = match self.fetch_transcript(body.clone(), observer) {
                        Err(error) if error.kind == Kind::Cancelled || error == no_room() => {
                            return Err(error);
                        }
                        found => Arc::new((body.clone(), found)),
                    };
                    all.insert(0, found);
                    all.truncate(VARIANTS);
                }
                Ok(Arc::new(all))
            };
            let all = download.get(max_age, observer.as_ref(), fetch)?;
            if let Some(found) = of(&all) {
                let length = found.1.as_ref().map_or(0, |found| found.transcript.len());
                return observer.hold(length).map(|()| found);
            }
            // Those are in other languages, or with times.
            max_age = Duration::ZERO;
        }
    }

    fn fetch_transcript(&self, body: Vec<u8>, observer: &Observer) -> Result<Transcript, Error> {
        let request = Route::Transcript.request();
        let response = self.post(&request, body, observer);
        let response = response.map_err(|error| Error {
            detail: self.without_key(&error.detail),
            ..error
        })?;
        let found: Transcript =
            decode(&response.into_bytes()?).ok_or_else(|| self.unexpected(&request))?;
        match found.transcript.trim().is_empty() {
            true => Err(Error::new(Kind::ApiError, youtube::NO_TRANSCRIPT).after_status(200)),
            false => Ok(found),
        }
    }

    /// Validates a run before it is sent. Costs a `GET` of the pattern if there are variables or the input has a `{`,
    /// and nothing otherwise.
    pub(crate) fn check(&self, request: Box<Chat>, observer: &Observer) -> Result<Checked, Error> {
        let unused = self.guard(&request, observer)?;
        Ok(Checked { request, unused })
    }

    /// `POST /chat`, never retried. Passes each event to `each` as soon as it is read, errors sanitised; an error of
    /// `each`, which pays for what it keeps, ends the run and closes the connection.
    ///
    /// Returns `Ok` after `each` got `complete`. [`Kind::ApiError`]: an `error` event, no content, or a 200 that is not
    /// a run. [`Kind::Timeout`]: silence before any content. [`Kind::StreamInterrupted`]: no `complete`.
    /// [`Kind::ResponseTooLarge`]: output beyond 32 MiB. A JSON body with one content event is a whole run.
    pub(crate) fn run(
        &self,
        Checked { mut request, .. }: Checked,
        observer: &Observer,
        each: Each<'_>,
    ) -> Result<(), Error> {
        let input = request.input.len();
        let json = encode(&request.take_body(), observer)?;
        // From here on, only the encoded request is needed.
        drop(request);
        observer.release(input);
        let chat = Route::Chat.request();
        let response = self.post(&chat, json, observer)?;
        let mut run = EventRelay {
            client: self,
            each,
            observer,
            received: 0,
            is_complete: false,
        };
        if response.is_json {
            let body = response.into_bytes()?;
            let body = body.strip_prefix(events::MARK).unwrap_or(&body);
            match events::parse(body) {
                Ok(Event::Usage(_) | Event::Other) | Err(_) => return Err(self.not_a_run()),
                Ok(event) => run.take(event)?,
            }
            // A JSON body is the whole response.
            run.take(Event::Complete)?;
            return run.end();
        }
        run.read(response)
    }

    /// Refuses input and variables that Fabric's template engine could execute, and missing variables. Returns the
    /// given ones that the pattern does not use. It is read each time, because its text may have changed.
    fn guard(&self, step: &Chat, observer: &Observer) -> Result<Vec<String>, Error> {
        let (field, variables) = (&step.place.path("variables"), &step.variables);
        names::variables(field, variables)?;
        if variables.is_empty() && !template::is_suspicious(&step.input) {
            return Ok(Vec::new());
        }
        // Before 1.4.429, Fabric runs patterns of a custom folder but does not return them: accept code as input, but
        // nothing that could be a template.
        let is_harmless = variables.is_empty() && !template::is_template(&step.input);
        let pattern = match self.pattern(&step.pattern, observer) {
            Err(error) if is_harmless && error.is_vague() => return Ok(Vec::new()),
            pattern => pattern?,
        };
        template::check(&pattern, field, variables, &step.input)?;
        let needed = pattern.variables();
        lacks_nothing(step, &needed)?;
        let unused = variables.keys().filter(|name| !needed.contains(name));
        Ok(unused.cloned().collect())
    }

    /// Why a pattern of this text is only shown here and not rendered; `None` if it can be.
    pub(crate) fn why_raw(&self, name: &str, text: &str) -> Option<Error> {
        let is_rendered = self.has_fabric() || template::is_plain(text);
        (!is_rendered).then(|| template::not_plain(name))
    }

    /// How old the list of names may be when it is used to find out whether a name is missing.
    pub(crate) fn missing(&self) -> Duration {
        MISSING[usize::from(!self.has_fabric())]
    }

    /// Replaces the `error` of a run or read of `name` by "not found" if Fabric does not list that pattern. Errors with
    /// another cause stay unchanged.
    pub(crate) fn or_not_found(&self, name: &Name, error: Error, observer: &Observer) -> Error {
        // Fabric reports a missing pattern only as localised text, in a 500 or an `error` event.
        if error.kind != Kind::StreamInterrupted && !error.is_vague() {
            return error;
        }
        let known = self.cached_names();
        // The pattern may have been removed since then.
        let age = match known.is_some_and(|names| names.contains(name.as_str())) {
            true => Duration::ZERO,
            false => self.missing(),
        };
        match self.names(age, observer) {
            Err(why) if why.kind == Kind::Cancelled || !self.has_fabric() => why,
            Ok(names) if !names.contains(name.as_str()) => not_found(name, &names, &|_| true),
            _ => error,
        }
    }

    /// The answer to a `GET`; `decode` returns `None` for a body that is not Fabric's.
    fn read<T>(
        &self,
        request: FabricRequest,
        observer: &Observer,
        decode: impl FnOnce(Vec<u8>) -> Option<T>,
    ) -> Result<T, Error> {
        decode(self.get(&request, observer)?).ok_or_else(|| self.unexpected(&request))
    }

    /// The error for a 200 that is not the answer to a run.
    fn not_a_run(&self) -> Error {
        self.unexpected(&Route::Chat.request())
    }

    fn unexpected(&self, request: &FabricRequest) -> Error {
        let error = request.error(&self.settings.url, Cause::NotFabric, &[]);
        error.after_status(200)
    }
}

/// `None` on a 500, which means that Fabric has nothing of the kind: no such folder, no vendor.
fn unless_500<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Err(error) if error.status == Some(500) => Ok(None),
        read => read.map(Some),
    }
}

/// A validated run.
pub(crate) struct Checked {
    /// Boxed, because what is moved by value is copied on the stack of the run's thread, and pages of a stack that were
    /// used once stay in memory until the thread ends.
    request: Box<Chat>,
    /// The given variables that the pattern does not use, if its text is known.
    pub(crate) unused: Vec<String>,
}

/// Refuses a step that lacks values for some variables. Fabric would refuse it too, but its message may not arrive.
pub(crate) fn lacks_nothing(step: &Chat, needed: &[String]) -> Result<(), Error> {
    let (place, pattern, given) = (&step.place, step.pattern.as_str(), &step.variables);
    let is_missing = |name: &&String| {
        let Some(value) = given.get(*name).map(|value| value.trim()) else {
            return true;
        };
        let within = value.trim_matches(['<', '>', '[', ']', '{', '}']);
        let is = |blank: &str| names::is_same(within, blank);
        // Copied from the shape below, or a place for it: "<lang_code>", "<language>".
        let is_any = || names::is_usual(value) || is("language") || is("target language");
        let is_blank = value.is_empty()
            || value.starts_with('<') && value.ends_with('>')
            || *name == "lang_code" && is_any();
        is_blank && search::shipped(pattern).is_some() || ["…", "..."].contains(&value) || is(name)
    };
    let missing = needed.iter().filter(is_missing).map(String::as_str);
    let missing = Vec::from_iter(missing.take(MAX_VARIABLES));
    if missing.is_empty() {
        return Ok(());
    }
    if !needed.iter().all(|name| can_be_given(name)) {
        return Err(not_runnable(&place.path("pattern_name"), pattern));
    }
    // Variables that were given are in the shape too, because a repeated call has only what the shape shows.
    let all = Vec::from_iter(needed.iter().take(MAX_VARIABLES).map(String::as_str));
    // The language may have been given as something else.
    let is_language = |(name, value): &(&String, &String)| {
        name.to_lowercase().contains("lang") && !needed.contains(name) && text::is_language(value)
    };
    let language = given.iter().find(is_language);
    let language = language.map_or(&step.language, |(_, value)| value);
    let value = match all[..] {
        ["lang_code"] if !language.is_empty() => format!("\"{language}\""),
        _ => "\"…\"".to_owned(),
    };
    let shape = match place {
        Place::Object(object) => {
            let variables = place.give_in("\"variables\":", &all, &value);
            format!("{object} {{\"pattern_name\": \"{pattern}\", {variables}}}")
        }
        _ => place.give_in("variables", &all, &value),
    };
    let unknown = given.keys().filter(|name| !needed.contains(name));
    let unknown = match &*names::in_quotes(unknown.map(String::as_str), "or") {
        "" => String::new(),
        names => format!(" The pattern has no variable {}.", text::shown(names, 500)),
    };
    let detail = format!(
        "`{}` lacks {}, which the pattern {pattern} needs. Give {shape}.{unknown} Nothing was run.",
        place.path("variables"),
        names::in_quotes(missing, "and")
    );
    Err(Error::new(Kind::InvalidRequest, detail))
}

/// The error for a pattern that no Fabric can run; `field` is the argument that named it.
pub(crate) fn not_runnable(field: &str, pattern: &str) -> Error {
    let detail = format!(
        "`{field}`: no Fabric can run the pattern {pattern}, because Fabric takes the code \
         between `{{{{` and `}}}}` in its text for variables. Read its text with \
         fabric_get_pattern_details and follow it yourself."
    );
    Error::new(Kind::InvalidRequest, detail)
}

/// The error for an unknown pattern, with similar names, or else with the results of a search for it, as far as it
/// `allows` them.
pub(crate) fn not_found(name: &Name, names: &NameList, allows: &dyn Fn(&str) -> bool) -> Error {
    if names.is_empty() {
        return Error::of(Cause::NoPatterns, &[]);
    }
    let wanted = name.as_str();
    // Some callers give the name of a pattern's file.
    let bare = wanted.strip_suffix(".md").unwrap_or(wanted);
    let close = text::closest(bare, names.iter()).into_iter();
    let meant = close.filter(|known| text::is_misspelled(bare, known) && allows(known));
    let meant = names::suggestion(meant);
    let found = match meant.is_empty() && !names::is_usual(wanted) {
        true => names.index().search(wanted, MOST_FOUND, allows).hits,
        false => Vec::new(),
    };
    let hint = match names::in_quotes(found, "and").as_str() {
        "" => "fabric_list_patterns has them all.".to_owned(),
        found => format!(
            "A search for this finds {found}. If none of them does the task, describe the task as \
             query of fabric_list_patterns."
        ),
    };
    let detail = format!("Fabric has no pattern named \"{wanted}\".{meant} {hint}");
    Error::new(Kind::PatternNotFound, detail)
}

/// Decodes an object with fields of any type. Go writes an empty one as `null`.
fn members(body: &[u8]) -> Option<Map<String, Value>> {
    decode::<Option<_>>(body).map(Option::unwrap_or_default)
}

/// Encodes a request, charged to `observer` until it is sent.
fn encode(body: &impl Serialize, observer: &Observer) -> Result<Vec<u8>, Error> {
    // Cannot fail: there are only texts and numbers in it, with texts as keys.
    let json = serde_json::to_vec(body).unwrap_or_default();
    observer.hold(json.len()).map_err(|_no_room| too_many())?;
    Ok(json)
}

/// The error for a request that was not sent because the memory budget is exhausted.
pub(crate) fn too_many() -> Error {
    let detail = "The memory of this server (--max-memory) is taken by other requests. Try again in a moment.";
    Error::new(Kind::TooManyRequests, detail)
}

/// The error for a response that exceeds the memory budget.
pub(crate) fn no_room() -> Error {
    let detail = "The memory of this server (--max-memory) has no room for such a large answer \
        next to those of other calls. Ask for less, or try again in a moment.";
    Error::new(Kind::ResponseTooLarge, detail)
}

/// The result of a run, collected from its events.
struct EventRelay<'a> {
    client: &'a Client,
    each: Each<'a>,
    observer: &'a Observer,
    /// Bytes of content.
    received: usize,
    is_complete: bool,
}

impl EventRelay<'_> {
    /// Relays events until the run is complete. Not inlined: its buffer is where the stack of the request was.
    #[inline(never)]
    fn read(mut self, mut response: FabricResponse<'_>) -> Result<(), Error> {
        let mut decoder = Decoder::default();
        let mut held: usize = 0;
        let mut buffer = [0; READ];
        while !self.is_complete {
            let result = match response.read(&mut buffer) {
                Ok(0) => {
                    decoder.finish(&mut |event| self.take(event))?;
                    return match decoder.is_foreign == Some(true) {
                        true => Err(self.client.not_a_run()),
                        false => self.end(),
                    };
                }
                Ok(read) => decoder.feed(&buffer[..read], &mut |event| self.take(event)),
                Err(error) if decoder.is_foreign == Some(true) && error.kind != Kind::Cancelled => {
                    Err(self.client.not_a_run())
                }
                // Silence after some content is an interruption.
                Err(error) if error.kind == Kind::Timeout && self.received > 0 => Err(Error {
                    kind: Kind::StreamInterrupted,
                    ..error
                }),
                Err(error) => Err(error),
            };
            let result = result.and_then(|()| {
                // Twice the output, because JSON escapes what an event carries.
                if decoder.held() > 2 * MAX_RUN_OUTPUT {
                    return Err(self.too_long());
                }
                // Doubled: the incomplete event and its decoded text.
                let now = 2 * decoder.held();
                self.observer.release(held.saturating_sub(now));
                let more = self.observer.hold(now.saturating_sub(held));
                held = now;
                more
            });
            // After `complete`, trailing bytes do not matter: whether they are seen depends on how the stream was cut
            // into packets.
            if !self.is_complete {
                result?;
            }
        }
        self.end()
    }

    fn take(&mut self, mut event: Event) -> Result<(), Error> {
        if self.is_complete {
            return Ok(());
        }
        match &mut event {
            Event::Content { content, .. } => {
                self.received += content.len();
                if self.received > MAX_RUN_OUTPUT {
                    return Err(self.too_long());
                }
            }
            Event::Error { content } => {
                *content = sanitize(&self.client.without_key(content));
                let said = match content.as_str() {
                    "" => "It gave no reason: look at its own log.",
                    content => content,
                };
                let detail = format!("Fabric could not run the pattern. {said}");
                (self.each)(event)?;
                return Err(Error::new(Kind::ApiError, detail).after_status(200));
            }
            Event::Complete => self.is_complete = true,
            Event::Usage(_) => {}
            Event::Other => return Ok(()),
        }
        (self.each)(event)
    }

    fn too_long(&self) -> Error {
        let limit = MAX_RUN_OUTPUT >> 20;
        let detail = format!("The output is larger than the limit of {limit} MiB. Ask for less.");
        Error::new(Kind::ResponseTooLarge, detail)
    }

    fn end(self) -> Result<(), Error> {
        let (kind, detail) = if !self.is_complete {
            let detail = "Fabric's answer ended before it was complete. Run the pattern again if the rest is needed.";
            (Kind::StreamInterrupted, detail)
        } else if self.received == 0 {
            let detail = "Fabric completed the run without any output. Versions 1.4.367 to \
                1.4.465 can lose the reason: read Fabric's own log, and check the pattern, model \
                and variables.";
            (Kind::ApiError, detail)
        } else {
            return Ok(());
        };
        Err(Error::new(kind, detail).after_status(200))
    }
}

#[cfg(test)]
mod tests;
