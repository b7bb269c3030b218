//! Where the input of a run comes from, and which inputs are refused: links and files are not opened, so a model would
//! be paid for making up their content.

use std::sync::Arc;

use serde_json::Value;

use crate::config::MAX_RUN_OUTPUT;
use crate::fabric::{CallObserver, Chat, Error, Place, VideoId};
use crate::runs::{Run, RunId, RunState};
use crate::search::shipped;
use crate::tools::arguments::is_meant;
use crate::tools::get_run::find;
use crate::tools::get_transcript::{TranscriptStyle, fetch};
use crate::tools::{Arguments, Context, invalid};

use super::missing_text::{Missing, SHORT, is_none, missing};

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
        let video = arguments.parsed(video, "a string", |path, url| {
            let other = " Only videos at YouTube are opened: get the text of any other page or file \
                yourself and give it as input_text. Give the id of a run as run_id.";
            VideoId::parse(path, url).map_err(|error| invalid(error.detail + other))
        });
        let style = TranscriptStyle::read(arguments);
        let run_id = arguments.string("run_id: A completed run.");
        match (video, run_id) {
            (Some(video), None) => Ok(Some(InputSource::Video(video, style))),
            (None, run_id) if style == TranscriptStyle::default() => {
                Ok(run_id.map(InputSource::Run))
            }
            _ => Err(invalid(
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
    pub(super) fn text(self, context: &Arc<Context>) -> Result<String, Error> {
        Ok(match self {
            InputSource::Video(video, style) => {
                let text = fetch(context, &video, &style)?.transcript;
                // The body that it came in is gone.
                context.release(text.len());
                text
            }
            InputSource::Run(run_id) => {
                let run = completed(&run_id, context)?;
                context.hold(run.bare().bytes as usize)?;
                run.read_chars(0, MAX_RUN_OUTPUT)
            }
        })
    }

    /// What is known to be wrong with it before it is read.
    pub(super) fn fault(&self, context: &Context) -> Option<Error> {
        match self {
            InputSource::Video(..) => None,
            InputSource::Run(run_id) => completed(run_id, context).err(),
        }
    }
}

/// A completed run of the caller's.
fn completed(run_id: &str, context: &Context) -> Result<Run, Error> {
    let argument = "input_from.run_id";
    let run = find(context, argument, run_id)?;
    let record = run.bare();
    if record.state != RunState::Completed {
        let status = record.state.name();
        let detail = format!(
            "`{argument}` names a run with the status {status}: only the output of a completed \
             run can be an input. Nothing was run."
        );
        return Err(invalid(detail).about(argument));
    }
    Ok(run)
}

/// Longest input that may be arguments in JSON, in bytes.
const MAX_JSON: usize = 8 << 10;

/// Refuses a step's input that contains the bytes of a file, or that is about a link or a file and contains nothing else.
/// A model that can search may open links.
///
/// # Errors
/// `invalid-request`, saying what to give instead.
pub(super) fn check(step: &Chat, text: &str) -> Result<(), Error> {
    let row = shipped(step.pattern.as_str());
    if row.is_some_and(|row| row.takes_requests) {
        return Ok(());
    }
    let may_be_sentence = row.is_some_and(|row| row.takes_sentences);
    let give = |member, value| step.place.give_in("input_from", &[member], value);
    let (youtube, run) = (give("youtube", "link"), give("run_id", "id"));
    let itself = match step.place {
        Place::Shell => "the text itself (input_text=@FILE reads it from a file)",
        _ => "the text itself",
    };
    let text = text.trim();
    let json = (text.len() < MAX_JSON).then(|| serde_json::from_str(text).ok());
    let given = json.flatten().and_then(|json: Value| given_in(&json));
    let text = given.as_deref().unwrap_or(text);
    let binary = "a binary file or UTF-16, as it has NUL bytes (iconv or strings makes text of it)";
    let kind = file_kind(text).or(text.contains('\0').then_some(binary));
    let is_empty = given.is_some() && is_none(text);
    let missing = missing(text, may_be_sentence).or(is_empty.then_some(Missing::Text));
    let what = match (kind, missing) {
        (Some(what), _) => format!("is {what}, not text"),
        _ if RunId::parse(text).is_some() => format!("is the id of a run: give {run}"),
        (_, Some(Missing::File)) => format!(
            "only names a file or its path, and files are not opened: give {itself}, or {youtube}"
        ),
        (_, Some(Missing::Link)) if !step.search => format!(
            "only points to something that is not opened, such as a link or a video: for a \
             YouTube video give {youtube}, for anything else the text itself"
        ),
        (_, Some(Missing::Text)) => format!(
            "is only a request, a placeholder or a mention of a text: give the text itself, or {youtube}"
        ),
        _ => return Ok(()),
    };
    let as_it_is = step.place.give("input_is_text", "true");
    let detail = format!(
        "`input_text` {what}. Only if it is itself the text to work on, add {as_it_is}. Nothing was run."
    );
    Err(invalid(detail).about("input_text"))
}

/// What arguments in JSON give as the input, if it is all that they have, {"url": "https://…"}, or nothing,
/// {"role": "user", "content": ""}.
fn given_in(json: &Value) -> Option<String> {
    let members = match json {
        Value::Array(items) if items.len() == 1 => return given_in(&items[0]),
        Value::Object(members) => members,
        _ => return None,
    };
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let is_input = |name: &String| is_meant(name, "input_text") || is_meant(name, "input_from");
    let is_word = |text: &str| !text.contains(char::is_whitespace);
    let is_empty = |(name, value): (&String, &Value)| match is_input(name) {
        true => is_none(&text(value)),
        false => value.as_str().is_some_and(is_word),
    };
    let mut inputs = members.iter().filter(|(name, _)| is_input(name));
    let (_, input) = inputs.next()?;
    (members.len() == 1 || members.iter().all(is_empty)).then(|| text(input))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Name;

    #[test]
    fn what_only_names_something_is_refused_with_what_to_give() {
        let mut step = Chat::default();
        let said = |text: &str| check(&Chat::default(), text).map_err(|e| e.detail);
        let links = "https://example.org/a?b#c|\n HTTP://x \n|https://|www.example.org|<https://x>|\
                     https://x\nhttps://y|Link: https://x|https://ja.wikipedia.org/wiki/日本|https://한국.kr|请总结 https://x|What does https://youtu.be/x say?|\
                     Who is the guest in https://x/y|I need the main points of this talk: https://x/y|\
                     Can you read https://x/y and name the theses?|Di cosa parla l'articolo https://x/y|\
                     https://x/y what is he arguing|О чём это видео https://x/y|What does [it](https://x/y) say?|Watch https://x/y and list the tools|\
                     https://x/y and https://z/y|- https://x/y\n• https://z/y|{\"url\": \"https://x/y\"}|\
                     फ़ाइल https://x/y का सारांश दें|Tóm tắt video này https://x/y|\
                     Summarize https://x/y. Write for busy bakers|1. https://x|ftp://x|* https://x/y|s3://x|https://x and https://y|Run extract_wisdom on https://x/y|Shrň mi https://x/y|watch this https://x/y|See https://x|magnet:?xt=urn|mailto:a@b.org|data:text/plain,a|<a href=\"https://x/y\"></a>";
        let holes = "请总结这个PDF|summarize|Can you translate this?|I want you to summarize this article|see above|the user's article|上記の文章|<the user's text>|$(a)|{\"input\": null}|\
                     Explain this code|What does this error mean?|TEXT_GOES_HERE|-p extract_wisdom|the document I uploaded|clipboard contents|{\"text\": \"\", \"pattern\": \"x\"}|[article] [text]|[topic]|Here is the code:\n\n[code]|the output of run_0123456789abcdef0123456789abcdef|this article|My text.|Create summary|\
                     The content of the article|Summarize my sister's report|Is this code secure?|What went wrong in these logs?|The document is attached.|Who are the actors in x.epub?|Explain this Rust function to a beginner";
        for link in links.split('|').chain(holes.split('|')) {
            let refusal = said(link).unwrap_err();
            for word in "`input_text`|input_from|the text itself|input_is_text".split('|') {
                assert!(refusal.contains(word), "{refusal}");
            }
            // A search opens links.
            step.search = true;
            let is_hole = holes.contains(link);
            assert_eq!(check(&step, link).is_err(), is_hole, "{link}");
        }
        let texts = "/etc/hosts| /tmp/x.txt\n|C:\\My Files\\x.txt|d:/x|\\\\server\\x|\
                     file:///etc/hosts|a.tar.zip|../x|/My Files/x.txt|Podsumuj plik [x.pdf]|\
                     Input: /x/y|Zie bijlage|Sumarise \"C:\\x.pdf\" in 9 points|x(1).pdf|I've attached it, improve it|\
                     Check my attached code for security issues|Cosa dice l'allegato|Where is x.pdf|enclosed|Přečti x.docx a shrň to|\
                     Summarize the attachment, please|Summarize the attached yearly report|\
                     x.pdfを要約して|Analysiere bitte den Anhang|résume-moi le PDF x.pdf|\
                     What is the deadline in x.pdf|报告.pdf 讲了什么|资料.pdf|Sum up (\"x.pdf\")|会议记录.docx|Scan 5 vom 3.4.2025.pdf|/home/我/报告|\
                     check this contract for me: x.pdf|my notes.txt|\
                     Translate x.docx to Thai|Plan 7 (old).xlsx|x.pdf (2 MB)|x.pdf, 3 kb|my plan (2).pdf|x.txt and y.txt|Annual Report.pdf|../old plan/b c.md|`cat x.txt`|Review the code in src/main.rs for security problems|bücher/kapitel 1.txt|/mnt/data/x please|attachment://3|sandbox:/mnt/x";
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
                   {\"url\": \"https://x\", \"ok\": true}|éhttps://x|/etc is a folder|a/b|C:\\x\ny|\
                   See /tmp/x or ask Ana|Explain attachment theory|\
                   Explain why main.rs fails to compile|Translate “attached is my bill” into Thai|Describe uploading by FTP|\
                   東京で地震 https://x|是/否.对|Das Video war lang|What is a PDF file?|video|\
                   Was ist ein Link?|Compare PDF and EPUB|Translate 'read the document' into German|Improve this: I have attached the file.|\
                   Fix typo in README.md|What does robots.txt do?|\
                   How do I get JSON from https://x?|Who owns the moon? https://x/y|[x](https://x)|Extract the dates: x.pdf is due on 3 May, y.pdf on 9 May and z.md on 12 May|*/5 * * * * /usr/bin/backup|\
                   How do I merge a.pdf and b.pdf with pdftk?|L'allegato era vuoto|The attached load was heavy|C:\\> dir|Diese Seite https://x/y ist kaputt|Cette page https://x/y est cassée|\
                   Esta página https://x/y está rota|@bob pls review https://x/y - it changes the login|\
                   Please see the attached agenda for tomorrow's meeting. Ana|打印机坏了,见 photo.jpg|\
                   What is attachment theory?|x.py is ok|Send x.pdf|Is x.py or y.py faster?|open('x.txt').read()|How do I print x.pdf on Linux?|\
                   [docs](https://x)|昨天修复了 2 个错误，见 main.py|TODO 1: Rename X.png|Fix crash when opening 2024.pdf|Sum up https://x.org/a - The moon is cheese|附件是发票，请查收。谢谢，王芳|央行宣布下调存款准备金率 https://x/y|请看国务院部署外贸稳定增长措施 https://x/y|fetch(\"https://x\")|- buy milk\n- call Ana|\
                   (Message from Anna)|[Email sent to Bob]|This article is good.|Can I translate it?|Show the file above the code|As a baker, I want to summarize this|How to write the text|ERROR 404|The pattern summarize is slow|User can translate the page|Эти зумеры|{\"path\": \"\", \"text\": \"Bees make honey.\"}|{\"data\": null, \"errors\": [{\"of\": \"x y\"}]}|0 3 * * * /bin/x.sh|{% block content %}|{{ user }}|your_code fails|\
                   The Article|clean code|with open(\"x.csv\") as f:|Summarize my sister's report on bees and wasps|Is this city safe?|Who is the current king?|You are here.|Is https://x/y down?|What is `this`?|How do I attach a file in Gmail?|Explain this regex: ^a$|The history of the paper file|How I file my notes|I like this video|Das fasse ich nicht|$(x).y()|以上です|工作总结|todo|os.system(user_input)|How does a process differ from a thread?|\
                   What's the best way to read a file in Python?";
        for text in all.split('|') {
            assert_eq!(said(text), Ok(()), "{text}");
        }
        // A sentence to translate may speak of a file, but not ask for what is in it.
        (step.pattern, step.search) = (Name::parse("", "translate").unwrap(), false);
        let is_text = |text| check(&step, text).is_ok();
        let sentences = "Please find the file attached.|this article|See x.pdf";
        assert!(sentences.split('|').all(is_text));
        let asks = "Translate this|Translate x.pdf to Thai|x.pdf";
        assert!(!asks.split('|').any(is_text));
    }
}
