//! A fast fake Fabric in its own process: a thread per connection, one write per event as in Fabric.
//!
//! The prefix `/names-<n>` of a path selects a Fabric of n patterns; without it, 250. The behaviour of a run is in its
//! pattern's name: `tick_<n>_<µs>` sends n events at that interval, `flood_<n>` sends them at once, each with the time
//! it was sent as `t=<ns>`; `size_<bytes>` sends that much text in pieces of 1 KiB. Or it is in the input:
//! `say_<n>_<µs>_<word>` sends n events that contain the word, so that all runs differ; `fail_…` sends half of that and
//! then an error, `cut_…` closes the connection there.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::clock::now_ns;

const PIECE: usize = 1 << 10;

/// Serves on `port` until killed.
pub(crate) fn serve(port: u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    println!("{}", listener.local_addr().unwrap());
    for stream in listener.incoming().flatten() {
        let _ = thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(move || connection(stream));
    }
}

fn connection(stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream.try_clone()?);
    let mut output = stream;
    let (mut line, mut body) = (String::new(), Vec::new());
    let mut names = Names::default();
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            line.clear();
            input.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        body.resize(length, 0);
        input.read_exact(&mut body)?;
        answer(
            &target,
            &String::from_utf8_lossy(&body),
            &mut names,
            &mut output,
        )?;
    }
}

/// The list of names, encoded once per connection, because encoding is not measured.
#[derive(Default)]
struct Names {
    count: usize,
    json: String,
}

/// The name of a pattern.
pub(crate) fn pattern_name(number: usize) -> String {
    format!("pattern_number_{number:05}")
}

impl Names {
    fn json(&mut self, count: usize) -> &str {
        if self.count != count || self.json.is_empty() {
            let names: Vec<String> = (0..count).map(pattern_name).collect();
            *self = Names {
                count,
                json: serde_json::json!(names).to_string(),
            };
        }
        &self.json
    }
}

fn answer(target: &str, body: &str, names: &mut Names, output: &mut impl Write) -> io::Result<()> {
    let (count, path) = match target
        .strip_prefix("/names-")
        .and_then(|rest| rest.split_once('/'))
    {
        Some((count, path)) => (count.parse().unwrap_or(0), path),
        None => (250, target.trim_start_matches('/')),
    };
    match path {
        "patterns/names" => json(output, names.json(count)),
        "chat" => {
            let field = |name: &str| {
                Some(
                    body.split_once(&format!("\"{name}\":\""))?
                        .1
                        .split_once('"')?
                        .0,
                )
            };
            let input = field("userInput").filter(|input| input.contains('_'));
            chat(input.or(field("patternName")).unwrap_or_default(), output)
        }
        "models/names" => json(output, r#"{"models":["m"],"vendors":{"V":["m"]}}"#),
        "config" => json(output, "{}"),
        path if path.starts_with("patterns/") => json(output, &pattern(path)),
        _ => json(output, "[]"),
    }
}

/// A pattern in Fabric's format.
fn pattern(path: &str) -> String {
    let text = pattern_text(path);
    serde_json::json!({"Name": path.trim_start_matches("patterns/"), "Description": "", "Pattern": text}).to_string()
}

/// A text of about 5 KiB, different for each path: `patterns/NAME`.
pub(crate) fn pattern_text(path: &str) -> String {
    const WORDS: [&str; 12] = [
        "meeting", "text", "summary", "report", "risk", "code", "review", "lesson", "letter",
        "plan", "budget", "test",
    ];
    let mut seed: u32 = path.bytes().fold(7, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    let mut word = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        format!(
            "{}{}",
            WORDS[(seed >> 16) as usize % WORDS.len()],
            seed >> 26
        )
    };
    let mut text = format!(
        "# IDENTITY and PURPOSE\n\nYou extract the {} of a {}.\n",
        word(),
        word()
    );
    while text.len() < 5 << 10 {
        text.push_str(&format!(
            "\n- Look for the {} in each {} that has a {}.",
            word(),
            word(),
            word()
        ));
    }
    text
}

fn json(output: &mut impl Write, body: &str) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
    output.write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes())
}

fn chat(what: &str, output: &mut impl Write) -> io::Result<()> {
    let mut parts = what.split('_');
    let kind = parts.next().unwrap_or_default();
    let mut number = || {
        parts
            .next()
            .and_then(|n| n.parse::<usize>().ok())
            .unwrap_or(0)
    };
    let (count, gap) = (number(), Duration::from_micros(number() as u64));
    output.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/readystream\r\nTransfer-Encoding: chunked\r\n\r\n",
    )?;
    if kind == "size" {
        let mut output = io::BufWriter::with_capacity(64 << 10, &mut *output);
        let mut left = count;
        while left > 0 {
            let piece = left.min(PIECE);
            event(&mut output, "content", &text(piece))?;
            left -= piece;
        }
        output.flush()?;
    } else if let Some(word) = parts.next() {
        let said = if kind == "say" { count } else { count / 2 };
        for number in 0..said {
            thread::sleep(gap);
            event(output, "content", &piece(word, number))?;
        }
        match kind {
            "fail" => event(output, "error", "the model has failed")?,
            "cut" => return Err(io::ErrorKind::ConnectionReset.into()),
            _ => {}
        }
    } else {
        for _ in 0..count {
            if !gap.is_zero() {
                thread::sleep(gap);
            }
            event(output, "content", &format!("t={} ", now_ns()))?;
        }
    }
    event(output, "complete", "")?;
    output.write_all(b"0\r\n\r\n")
}

/// The text of the event `number` of `say_…`.
pub(crate) fn piece(word: &str, number: usize) -> String {
    format!("{word}.{number} ")
}

/// The text of `size_<bytes>`, up to 1 KiB.
pub(crate) fn text(bytes: usize) -> String {
    "text of the answer, ".repeat(PIECE / 20 + 1)[..bytes.min(PIECE)].to_owned()
}

/// One event, one chunk, one write.
fn event(output: &mut impl Write, kind: &str, content: &str) -> io::Result<()> {
    let data = format!(
        "data: {{\"type\":\"{kind}\",\"format\":\"markdown\",\"content\":\"{content}\"}}\n\n"
    );
    output.write_all(format!("{:x}\r\n{data}\r\n", data.len()).as_bytes())
}
