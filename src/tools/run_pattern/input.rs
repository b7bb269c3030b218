//! Where the input of a run comes from, and which inputs are refused: links and files are not opened, so a model would
//! be paid for making up their content.

use std::sync::{Arc, LazyLock};

use crate::config::MAX_RUN_OUTPUT;
use crate::fabric::{CallObserver, Error, VideoId};
use crate::runs::{RunId, RunState};
use crate::search::{LANGUAGE, is_unspaced, known, plain_letters};
use crate::text::{is_invisible, is_misspelled, is_placeholder};
use crate::tools::arguments::is_meant;
use crate::tools::get_run::find;
use crate::tools::get_transcript::{TranscriptStyle, fetch};
use crate::tools::{Arguments, Context, Failure, refused};

/// Where the input of a run comes from, unless the call has it.
pub(super) enum InputSource {
    /// The transcript of a video.
    Video(VideoId, TranscriptStyle),
    /// The output of an earlier run, by its id.
    Run(String),
}

impl InputSource {
    /// The argument `input_from`. Some models give each of its members, although they mean none.
    pub(super) fn read(arguments: &mut Arguments<'_>) -> Result<Option<InputSource>, Error> {
        let video = "youtube: Address at youtube.com or youtu.be.";
        let video = arguments.parsed(video, |path, url| {
            let other = " Give a text as input_text, and the id of a run as run_id.";
            VideoId::parse(path, url).map_err(|error| refused(error.detail + other))
        });
        let style = TranscriptStyle::read(arguments);
        let run_id = arguments.string("run_id: A completed run.");
        match (video, run_id) {
            (Some(video), None) => Ok(Some(InputSource::Video(video, style))),
            (None, run_id) if style == TranscriptStyle::default() => {
                Ok(run_id.map(InputSource::Run))
            }
            _ => Err(refused(
                "`input_from` takes either run_id or youtube, and with youtube also language and \
                 timestamps. Give a text as input_text.",
            )),
        }
    }

    /// The member that a bare string is: the id of a run or an address.
    pub(super) fn member(text: &str) -> &'static str {
        let text = text.trim().to_lowercase();
        let is_run = text.starts_with("run_") || ["last", "latest"].contains(&&*text);
        if is_run { "run_id" } else { "youtube" }
    }

    /// The input. Its memory is charged to the call until it is sent.
    pub(super) fn text(self, context: &Arc<Context>) -> Result<String, Failure> {
        Ok(match self {
            InputSource::Video(video, style) => {
                let text = fetch(context, &video, &style)?.transcript;
                // The body that it came in is gone.
                context.release(text.len());
                text
            }
            InputSource::Run(run_id) => output(&run_id, context)?,
        })
    }
}

/// The whole output of a completed run of the caller's.
fn output(run_id: &str, context: &Arc<Context>) -> Result<String, Error> {
    let argument = "input_from.run_id";
    let run = find(context, argument, run_id)?;
    let record = run.bare();
    if record.state != RunState::Completed {
        let status = record.state.name();
        let detail = format!(
            "`{argument}` names a run with the status {status}: only the output of a completed \
             run can be an input. Nothing was run."
        );
        return Err(refused(detail).about(argument));
    }
    context.hold(record.bytes as usize)?;
    Ok(run.read_chars(0, MAX_RUN_OUTPUT))
}

/// How links begin.
const SCHEMES: &str =
    "https:// http:// www. ftp:// sftp:// s3:// gs:// magnet:? mailto: data:text/";

/// Longest text that may be nothing but a request, in characters.
const SHORT: usize = 200;

/// The words of requests, each after the name of a list that it is in.
static LISTS: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let lists = include_str!("requests.txt").lines();
    let lists = lists.filter_map(|line| line.split_once(": "));
    let words = lists.map(|(list, words)| words.split(' ').map(move |word| (list, word)));
    words.flatten().collect()
});

/// The lists of words that only stand for a text, and are no part of a request about something else.
const HOLES: [&str; 6] = ["stands", "beside", "points", "polite", "pronouns", "asker"];

/// What is given for no text.
const NONE: &str = "null|none|nil|undefined|n/a|tbd|nan|object object";

/// What an input may contain besides words. The later in this list, the clearer it is that something is to be done with
/// it: texts about software mention source files, and the addresses of whole sites, without asking for that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Attachment,
    Source,
    Site,
    Link,
    File,
}

/// Refuses an `argument` that contains the bytes of a file, or that is about a link or a file and contains nothing
/// else. A model that can `search` may open links.
///
/// # Errors
/// `invalid-request`, saying what to give instead.
pub(super) fn check(argument: &str, text: &str, search: bool) -> Result<(), Error> {
    // What is meant for another argument is given here too: {"url": "https://…"}.
    let text = text.trim();
    let member = text.strip_prefix("{\"").and_then(|m| m.split_once("\":"));
    let is_input = |name| is_meant(name, "input_text") || is_meant(name, "input_from");
    let member = member.filter(|(name, _)| is_input(name));
    let value = member.map(|(_, value)| value.strip_suffix('}').unwrap_or(value));
    let text = value.map_or(text, |value| value.trim_matches([' ', '"']));
    let binary = "a binary file or UTF-16, as it has NUL bytes (iconv or strings makes text of it)";
    let kind = file_kind(text).or(text.contains('\0').then_some(binary));
    let what = match (kind, meant(text)) {
        (Some(what), _) => &format!("is {what}, not text"),
        _ if RunId::parse(text).is_some() => "is the id of a run: give input_from {\"run_id\": id}",
        (None, Some(Thing::File | Thing::Attachment | Thing::Source)) => {
            "only names a file or its path, and files are not opened: give the text itself, or \
             input_from {\"youtube\": link}"
        }
        _ if text.chars().nth(SHORT).is_none() && is_hole(text)
            || member.is_some() && is_none(text) =>
        {
            "only stands for a text, points to one or asks for something: give the text itself, or \
             input_from {\"youtube\": link}"
        }
        (None, Some(_)) if !search => {
            "only points to something that is not opened, such as a link or a video: for a \
             YouTube video give input_from {\"youtube\": link}, for anything else the text itself"
        }
        _ => return Ok(()),
    };
    let detail = format!(
        "`{argument}` {what}. \"input_is_text\": true would run the pattern on it as it is. Nothing was run."
    );
    Err(refused(detail).about(argument))
}

/// Kinds of files that are no text, and marks of them: how they begin, as base64 or with a character for each byte, which
/// is U+FFFD if it was lost. What follows a ? comes soon after such a character.
const FILES: [(&str, &str); 4] = [
    (
        "a PDF (pdftotext makes text of it)",
        "%PDF- JVBERi0 data:application/pdf",
    ),
    (
        "a zip archive or an office document (unzip opens it, pandoc makes text of it)",
        "PK\u{3}\u{4} UEsDB data:application/zip",
    ),
    (
        "an image (tesseract makes text of it)",
        "GIF8 R0lGOD iVBORw0KGgo /9j/4 data:image/ PNG\r\n\u{1a} II*\0 MM\0* \u{ff}\u{d8}\u{ff} \
         ?JFIF ?Exif ?WEBP ?ftyphe ?ftypmif1 ?ftypmsf1 ?ftypavif",
    ),
    (
        "a compressed file, an older office document or a program (7z or LibreOffice opens some of them)",
        "BZh QlpoO 7z\u{bc}\u{af} 7z\u{fffd}\u{fffd} N3q8r \u{1f}\u{8b} \u{1f}\u{fffd} H4sI \u{fd}7zXZ \u{fffd}7zXZ Rar!\u{1a} \
         0M8R4KGx \u{d0}\u{cf}\u{11} \u{fffd}\u{fffd}\u{11} \u{871}\u{1a} \u{7f}ELF f0VMR",
    ),
];

/// What kind of file a text contains, and which program makes text of it.
pub(crate) fn file_kind(text: &str) -> Option<&'static str> {
    let is_byte = |c: char| c.is_control() && !c.is_whitespace() || "\u{feff}\u{fffd}".contains(c);
    let start = text.trim_start_matches(|c: char| c.is_whitespace() || is_byte(c));
    // "Summarize this: JVBERi0…"
    let mut parts = text.split_whitespace().take(SHORT);
    let most = parts.find(|part| part.len() > SHORT && text.len() - part.len() < SHORT);
    let starts = [text, start, most.unwrap_or(text)];
    let head = String::from_iter(text.chars().take(16).skip_while(|c| !is_byte(*c)));
    let is = |mark: &str| match mark.strip_prefix('?') {
        Some(mark) => head.contains(mark),
        None => starts.iter().any(|start| start.starts_with(mark)),
    };
    let found = FILES.iter().find(|(_, marks)| marks.split(' ').any(is));
    found.map(|(what, _)| *what)
}

/// The only thing that a text is about, if it is the path of that, or hardly says anything else: it may have two words
/// of no list if it has one of the `verbs`, one if it has another word that asks for something, and none otherwise. It
/// takes a clearer request if the thing itself is less clear.
fn meant(text: &str) -> Option<Thing> {
    let is_long = text.chars().nth(SHORT).is_some();
    // Links and paths may be long.
    if is_long && (!text.is_ascii() || text.contains(char::is_whitespace)) {
        return None;
    }
    // "[title](link)" is two words.
    let text = &text.replace("](", " ").replace("href=", " ");
    let text = text.trim_matches(|c| "\"'`<>[]()$@“”«»".contains(c));
    let mut endings = LISTS.iter().filter(|(_, word)| word.starts_with('.'));
    let is_file = endings.any(|(_, ending)| text.ends_with(ending));
    // Paths may have blanks.
    let is_path = match text.as_bytes() {
        [b'\\', b'\\', ..] => true,
        [disk, b':', b'/' | b'\\', ..] => {
            disk.is_ascii_alphabetic()
                && (is_file || !text.contains('>') && text.matches(' ').count() < 3)
        }
        [b'/', ..] | [b'~' | b'.', b'/', ..] | [b'.', b'.', b'/', ..] => is_file,
        _ => false,
    };
    // Names of files may have blanks too, if they have a number and are written like titles.
    let in_title = |word: &str| word.starts_with(|c: char| c.is_uppercase() || !c.is_alphabetic());
    let is_title = text.contains(' ') && text.rsplit(' ').skip(1).all(in_title);
    let (start, end) = text.rsplit_once([' ', '(']).unwrap_or_default();
    let is_copy = start.contains(char::is_numeric) || end.contains(").");
    let is_numbered = is_copy && end.starts_with(char::is_numeric);
    let is_document = in_title(end) && lists(end).contains(&"documents");
    let is_sure = is_document || text.contains(char::is_numeric);
    let is_name = is_file && (is_title && is_sure || is_numbered);
    if is_path && !text.contains('\n') || is_name && !text.contains(['\n', ':', '"', '?']) {
        return Some(Thing::File);
    }
    let plain = plain_letters(text);
    // In scripts whose words are parted below, too.
    let is_one = !text.contains(char::is_whitespace) && text.matches('/').count() > 1;
    // "fetch('https://…')"
    let is_call = |(at, _): (usize, &str)| text[..at].ends_with(char::is_alphanumeric);
    let is_code = ["('", "(\""]
        .iter()
        .any(|quote| text.match_indices(quote).any(is_call));
    let whole = thing(&plain, &[]).filter(|_| is_one && !is_code);
    if whole.is_some() {
        return whole;
    }
    // A name in quotes and parentheses is in code.
    if is_long || is_code {
        return None;
    }
    // "l'article" is two words, and what is in a script without blanks is a word.
    let plain = plain.replace(['\'', '’'], "' ");
    let plain = Vec::from_iter(plain.chars());
    let parts = plain.chunk_by(|a, b| is_unspaced(*a) == is_unspaced(*b) || *b == '.');
    let parts = Vec::from_iter(parts.map(String::from_iter)).join(" ");
    let (mut found, mut letters, mut asks, mut is_alone) = (None, 0, 0, true);
    let (mut is_led, mut last) = (false, "");
    // The points of a list say nothing.
    let words = parts.split_whitespace();
    for word in words.filter(|word| !["-", "*", "•"].contains(word)) {
        let mut lists = lists(word);
        lists.retain(|list| !HOLES.contains(list));
        let is = |list| lists.contains(&list);
        // In parentheses, a link is a source.
        let thing = thing(word, &lists);
        let thing = thing.filter(|thing| *thing != Thing::Link || !word.starts_with('('));
        // What follows a colon or is quoted may be what is asked about.
        let is_given = last.ends_with(':') || word.starts_with(['"', '\'', '“', '„', '«']);
        if is_given && thing < Some(Thing::Source) {
            return None;
        }
        found = found.max(thing);
        is_led |= thing >= Some(Thing::Link) && letters == 0 && asks > 1 && !is_given;
        if thing.is_none() || word.starts_with(is_unspaced) {
            is_alone &= word.ends_with(':') || is("joins") || is("definite");
            // The name of a file says nothing; what follows a clear request mostly says how.
            let said =
                usize::from(thing < Some(Thing::File)) * unknown(word, !lists.is_empty(), false);
            letters += if is_led { said / 2 } else { said };
            let is_asking = usize::from(is("asks") || is("unspaced"));
            asks = asks.max(if is("verbs") { 2 } else { is_asking });
        }
        last = word;
    }
    let is_clear = is_alone || found >= Some(Thing::Link);
    found.filter(|_| letters / WORD + usize::from(!is_clear) <= asks)
}

/// Whether a text says nothing: it has only marks, or is "null" or the like.
pub(super) fn is_none(text: &str) -> bool {
    let is_around = |c| is_mark(c) || c.is_whitespace() || is_invisible(c) || "{}…".contains(c);
    match text.trim_matches(is_around) {
        "" => !text.contains([':', '?', '!']),
        // "Todo" is everything in Spanish.
        said => said == "TODO" || NONE.split('|').any(|none| none.eq_ignore_ascii_case(said)),
    }
}

/// Whether a short text has none of its own: it only stands where one should be ("{{input}}", "[paste text here]", "Input:",
/// "$(cat notes)"), points to one ("see above", "the user's article"), or asks for one to be worked on ("Summarize this").
fn is_hole(text: &str) -> bool {
    let is_between = |c: char| c.is_whitespace() || is_mark(c) || "{}$%_/".contains(c);
    let plain = plain_letters(text);
    let words = plain.split(is_between).filter(|word| !word.is_empty());
    let words = Vec::from_iter(words.map(|word| (word, lists(word))));
    let is = |lists: &[&str], wanted: &str| wanted.split(' ').any(|one| lists.contains(&one));
    let has = |wanted| words.iter().any(|(_, lists)| is(lists, wanted));
    let has_only = |wanted| words.iter().all(|(_, lists)| is(lists, wanted));
    // All of a word in a script without blanks is known.
    let is_known = |word: &str| !word.starts_with(is_unspaced) || unknown(word, false, true) == 0;
    let is_whole = words.iter().all(|(word, _)| is_known(word));
    let is_command = text.starts_with("$(") && text.find([')', '"', '\'']) == Some(text.len() - 1);
    let is_marked = is_placeholder(&text.replace(' ', "_")) || text.ends_with([':', '：']);
    let is_value = (is_marked || text.starts_with('$')) && has("stands");
    // A name is written as "The Post" is, and what is quoted or follows a colon is given.
    let mut capitals = text.split([' ', '(']).filter(|word| !word.is_empty());
    let is_name = words.len() > 1 && capitals.all(|word| word.starts_with(char::is_uppercase));
    let mut given = [" '", " \"", " “", ": "].iter();
    let is_given = given.any(|mark| text.contains(mark));
    let is_pointer =
        has("definite") && has("stands kinds") || has("points") && has("joins stands kinds");
    // "Summarize document", "I want you to summarize this article", and not "The user summarizes a document".
    let is_certain =
        |pair: &[(&str, Vec<_>)]| is(&pair[0].1, "definite verbs") && is(&pair[1].1, "kinds");
    let says = |(word, lists): &(&str, Vec<&str>)| {
        unknown(word, !lists.iter().all(|is| HOLES.contains(is)), false)
    };
    let said: usize = words.iter().map(says).sum();
    let is_about_kind = has("verbs") && said < WORD && words.windows(2).any(is_certain);
    // No noun, such as "要約", and no word that only resembles a verb.
    let is_verb = |(word, lists): &(&str, Vec<&str>)| {
        LISTS.contains(&("verbs", word)) && lists.iter().all(|list| *list == "verbs")
    };
    let is_alone = words.len() == 1 && words.iter().all(is_verb);
    let is_about_it = is_alone || has("definite points pronouns");
    let begins = || is(&words[0].1, "verbs polite");
    let is_request = has("verbs") && is_about_it && begins();
    let pointing = "stands beside definite points kinds verbs joins";
    let asking = format!("{pointing} polite pronouns asker asks unspaced around attached");
    let is_all = is_pointer && has_only(pointing) || is_request && has_only(&asking);
    is_command
        || is_value && has_only("stands beside")
        || !is_given && (is_about_kind || is_all && is_whole && !is_name)
}

/// What may stand around a word.
fn is_mark(c: char) -> bool {
    "\"'`()[]<>*,;:!?.-–—，。：？！、¿¡“”„«»‘’".contains(c)
}

/// The lists that a word, or a part of it, is in.
fn lists(word: &str) -> Vec<&'static str> {
    let parts = Vec::from_iter(word.split('-').map(|part| part.trim_matches(is_mark)));
    let is_in = |(list, known): &&(&str, &str)| {
        parts.iter().any(|part| match *list {
            "unspaced" => part.starts_with(known) || part.ends_with(known),
            "documents" | "sources" => part.ends_with(known),
            // A letter has at most two bytes, and two may be wrong.
            "verbs" if part.len() > 6 && known.len() > 6 => {
                part.len().abs_diff(known.len()) < 5 && is_misspelled(part, known)
            }
            "joins" if part.starts_with(char::is_numeric) => {
                part.bytes().all(|b| b.is_ascii_digit())
            }
            _ => part == known || known.starts_with(is_unspaced) && part.contains(known),
        })
    };
    // "Run extract_wisdom on …"
    let verb = (word.contains('_') && known(word).is_some()).then_some("verbs");
    let found = LISTS.iter().filter(is_in).map(|(list, _)| *list);
    found.chain(verb).collect()
}

/// As many letters of scripts without blanks as a word of others counts for.
const WORD: usize = 4;

/// How much a word says unless it `is_listed`: a word, or the letters of scripts without blanks that are in no list. With
/// `holes`, the lists of these count too.
fn unknown(word: &str, is_listed: bool, holes: bool) -> usize {
    if !word.starts_with(is_unspaced) {
        let bare = word.trim_matches(is_mark);
        let is_known = bare.is_empty() || LANGUAGE.foreign_ignored.contains(bare);
        return WORD * usize::from(!is_known && !is_listed);
    }
    let known = LISTS
        .iter()
        .filter(|(list, _)| holes || !HOLES.contains(list));
    let known = known.filter(|(_, known)| known.starts_with(is_unspaced));
    let rest = known.fold(word.to_owned(), |rest, (_, known)| rest.replace(known, ""));
    rest.chars().filter(|c| is_unspaced(*c)).count()
}

/// What a word that is in some lists names outside of the text.
fn thing(word: &str, lists: &[&str]) -> Option<Thing> {
    let word = word.trim_matches(is_mark);
    let (host, page) = word.split_once('/').unwrap_or_default();
    let is_host = host.starts_with(char::is_alphanumeric) && host.contains('.');
    let mut starts = SCHEMES.split(' ');
    if is_host && !page.is_empty() || starts.any(|start| word.starts_with(start)) {
        let has_path = word.trim_end_matches('/').matches('/').count() > 2 || !word.contains("://");
        return Some(if has_path { Thing::Link } else { Thing::Site });
    }
    let path = word.trim_start_matches(['~', '.']).strip_prefix('/');
    let (name, ending) = word.rsplit_once('.').unwrap_or_default();
    let is_path = path.is_some_and(|path| path.starts_with(char::is_alphabetic))
        || name.contains('/') && ending.ends_with(char::is_alphabetic)
        || word.starts_with("file://")
        || word.get(1..3) == Some(":\\");
    let named = lists.iter().filter_map(|list| match *list {
        "documents" => Some(Thing::File),
        "sources" => Some(Thing::Source),
        "attached" => Some(Thing::Attachment),
        _ => None,
    });
    named.chain(is_path.then_some(Thing::Source)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_names_something_is_refused_with_what_to_give() {
        let said = |text: &str| check("input_text", text, false).map_err(|e| e.detail);
        let links = "https://example.org/a?b#c|\n HTTP://x \n|https://|www.example.org|<https://x>|\
                     https://x\nhttps://y|Link: https://x|https://ja.wikipedia.org/wiki/日本|https://한국.kr|请总结 https://x|What does https://youtu.be/x say?|\
                     Who is the guest in https://x/y|I need the main points of this talk: https://x/y|\
                     Can you read https://x/y and name the theses?|Di cosa parla l'articolo https://x/y|\
                     https://x/y what is he arguing|О чём это видео https://x/y|What does [it](https://x/y) say?|Watch https://x/y and list the tools|\
                     https://x/y and https://z/y|- https://x/y\n• https://z/y|{\"url\": \"https://x/y\"}|\
                     फ़ाइल https://x/y का सारांश दें|Tóm tắt video này https://x/y|\
                     Summarize https://x/y. Write for busy bakers|1. https://x|ftp://x|* https://x/y|s3://x|https://x and https://y|Run extract_wisdom on https://x/y|Shrň mi https://x/y|watch this https://x/y|See https://x|magnet:?xt=urn|mailto:a@b.org|data:text/plain,a|<a href=\"https://x/y\"></a>";
        let holes = "请总结这个PDF|summarize|Can you translate this?|I want you to summarize this article|see above|the user's article|上記の文章|<the user's text>|$(a)|{\"input\": null}";
        for link in links.split('|').chain(holes.split('|')) {
            let refusal = said(link).unwrap_err();
            for word in "`input_text`|input_from|the text itself|input_is_text".split('|') {
                assert!(refusal.contains(word), "{refusal}");
            }
            // A search opens links.
            assert!(
                check("input_text", link, true).is_err() == holes.contains(link),
                "{link}"
            );
        }
        let texts = "/etc/hosts| /tmp/x.txt\n|C:\\My Files\\x.txt|d:/x|\\\\server\\x|\
                     file:///etc/hosts|a.tar.zip|../x|/My Files/x.txt|Podsumuj plik [x.pdf]|\
                     Input: /x/y|Zie bijlage|Sumarise \"C:\\x.pdf\" in 9 points|x(1).pdf|I've attached it, improve it|\
                     Check my attached code for security issues|Cosa dice l'allegato|Where is x.pdf|enclosed|Přečti x.docx a shrň to|\
                     Summarize the attachment, please|Summarize the attached yearly report|\
                     x.pdfを要約して|Analysiere bitte den Anhang|résume-moi le PDF x.pdf|\
                     What is the deadline in x.pdf|报告.pdf 讲了什么|资料.pdf|Sum up (\"x.pdf\")|会议记录.docx|Scan 5 vom 3.4.2025.pdf|/home/我/报告|\
                     check this contract for me: x.pdf|which is better: x.pdf or y.pdf|my notes.txt|\
                     Translate x.docx to Thai and leave tables alone|Plan 7 (old).xlsx|x.pdf (2 MB)|x.pdf, 3 kb|my plan (2).pdf|x.txt and y.txt|Annual Report.pdf|../old plan/b c.md|`cat x.txt`";
        for path in texts.split('|') {
            assert!(said(path).unwrap_err().contains("names a file"), "{path}");
        }
        let long = "Sum it up: JVBERi0".to_owned() + &"x".repeat(SHORT);
        for (bytes, what) in [
            ("%PDF-1.7\n", "a PDF (pdftotext"),
            ("PK\u{3}\u{4}", "a zip archive"),
            ("\u{fffd}PNG\r\n\u{1a}", "an image"),
            ("\u{fffd}\u{fffd}\0\u{10}JFIF", "an image"),
            ("data:image/png;base64,iVBO", "an image"),
            ("\u{fffd}\u{fffd}/\u{fffd}Exif\0", "an image"),
            ("RIFF$\u{fffd}\0\0WEBP", "an image"),
            ("\u{fffd}\u{fffd}\u{11}\u{871}\u{1a}", "an older office"),
            ("7z\u{fffd}\u{fffd}'\u{1c}", "a compressed file"),
            ("\u{7f}ELF\u{2}", "or a program"),
            ("a\0", "NUL bytes (iconv"),
            (&long, "a PDF"),
        ] {
            assert!(said(bytes).unwrap_err().contains(what), "{bytes}");
        }
        let all = "|text|Exif and JFIF|RIFF: WEBP|a\nExif|httpsː//x|https:/x|Explain: main.rs is slow|#!/bin/sh|\
                   {\"url\": \"https://x\", \"ok\": true}|éhttps://x|/etc is a folder|a/b|C:\\x\ny|é:/x|\
                   See /tmp/x or tell me|Explain attachment theory|\
                   Explain why main.rs fails to compile|Translate “attached is my bill” into Thai|Describe uploading by FTP|\
                   東京で地震 https://x|是/否.对|Das Video war lang|What is a PDF file?|video|\
                   Was ist ein Link?|Compare PDF and EPUB|Translate 'read the document' into German|Improve this: I have attached the file.|\
                   Fix typo in README.md|What does robots.txt do?|Read the story at https://x/y|\
                   How do I get JSON from https://x?|Who owns the moon? https://x/y|[x](https://x)|Extract the dates: x.pdf is due on 3 May, y.pdf on 9 May and z.md on 12 May|*/5 * * * * /usr/bin/backup|\
                   How do I merge a.pdf and b.pdf with pdftk?|L'allegato era vuoto|The attached load was heavy|C:\\> dir|Diese Seite https://x/y ist kaputt|Cette page https://x/y est cassée|\
                   Esta página https://x/y está rota|@bob pls review https://x/y - it changes the login|\
                   Please see the attached agenda for tomorrow's meeting. Ana|打印机坏了,见 photo.jpg|\
                   What is attachment theory?|x.py is ok|Send x.pdf|Is x.py or y.py faster?|open('x.txt').read()|How do I print x.pdf on Linux?|\
                   [docs](https://x)|昨天修复了 2 个错误，见 main.py|TODO 1: Rename X.png|Fix crash when opening 2024.pdf|Sum up https://x.org/a - The moon is cheese|附件是发票，请查收。谢谢，王芳|央行宣布下调存款准备金率 https://x/y|请看国务院部署外贸稳定增长措施 https://x/y|fetch(\"https://x\")|- buy milk\n- call Ana|\
                   (Message from Anna)|[Email sent to Bob]|{% block content %}|{{ user }}|your_code fails|\
                   The Article|I like this video|Das fasse ich nicht|$(x).y()|以上です|工作总结|todo";
        for text in all.split('|') {
            assert_eq!(said(text), Ok(()), "{text}");
        }
    }
}
