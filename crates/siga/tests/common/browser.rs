//! A headless Chromium that a test controls over two pipes (the DevTools protocol: JSON messages, each terminated by NUL).
//!
//! The browser only opens files. It records the events of the page (requests, messages, exceptions), and ends when the value is
//! dropped.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

use super::{Bench, SOON, has};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A page in a browser.
pub(crate) struct Browser {
    process: Child,
    orders: PipeWriter,
    answers: Receiver<Value>,
    session: Option<String>,
    number: u64,
    /// Messages that the browser sent without a command.
    pub(crate) events: Vec<Value>,
}

/// Time limit for a page. The first start of a browser on a busy host is slow.
const PATIENCE: Duration = Duration::from_secs(60);

impl Browser {
    /// Starts a browser with an empty page. Prints the reason and returns `None` if no browser is installed.
    pub(crate) fn start(bench: &Bench) -> Option<Self> {
        if !has("chromium") {
            return None;
        }
        let (orders_end, orders) = std::io::pipe().unwrap();
        let (answers, answers_end) = std::io::pipe().unwrap();
        // The browser reads commands from descriptor 3 and writes answers to descriptor 4; the shell opens them.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null";
        let mut command = bench.command("sh");
        command.args(["-c", script, "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
        command.args(["--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update"]);
        command.arg("--remote-debugging-pipe");
        command.arg(format!("--user-data-dir={}", bench.path("browser").display())).env("HOME", bench.path("browser"));
        command.stdin(orders_end).stdout(answers_end).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let mut browser =
            Self { process, orders, answers: listen(answers), session: None, number: 0, events: Vec::new() };
        // Close this process's copies of the far ends, so that the answers end when the browser ends.
        drop(command);
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Sends a command and waits for its answer.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.number += 1;
        let mut order = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            order["sessionId"] = json!(session);
        }
        self.orders.write_all(order.to_string().as_bytes()).unwrap();
        self.orders.write_all(&[0]).unwrap();
        let begun = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let answer = self.answers.recv_timeout(left).unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// Evaluates an expression in the page and returns its value.
    #[track_caller]
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let order = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", &order);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Opens a file on a screen of this width and with this colour scheme.
    #[track_caller]
    pub(crate) fn open(&mut self, file: &Path, width: u32, scheme: &str) {
        let screen = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500});
        self.call("Emulation.setDeviceMetricsOverride", &screen);
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", &media);
        self.events.clear();
        let url = format!("file://{}", file.display());
        self.call("Page.navigate", &json!({ "url": url }));
        let begun = Instant::now();
        while self.events_of("Page.loadEventFired").is_empty() {
            let left = SOON.saturating_sub(begun.elapsed());
            let event = self.answers.recv_timeout(left).unwrap_or_else(|error| panic!("{url} does not load: {error}"));
            self.events.push(event);
        }
    }

    /// Returns the parameters of all events of one kind since the page was opened.
    pub(crate) fn events_of(&self, method: &str) -> Vec<Value> {
        let events = self.events.iter().filter(|event| event["method"] == method);
        events.map(|event| event["params"].clone()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A browser that receives this command ends its own processes and removes its files. Errors mean that it has already
        // ended.
        let _gone = self.orders.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let begun = Instant::now();
        while begun.elapsed() < SOON && self.process.try_wait().is_ok_and(|status| status.is_none()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _gone = self.process.kill();
        let _status = self.process.wait();
    }
}

/// Starts a thread that reads answers until the browser ends.
fn listen(answers: PipeReader) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut answers = BufReader::new(answers);
        let mut message = Vec::new();
        while answers.read_until(0, &mut message).is_ok_and(|length| length > 0) {
            message.pop();
            let sent = serde_json::from_slice(&message).ok().map(|value| sender.send(value));
            if sent.is_none_or(|sent| sent.is_err()) {
                return;
            }
            message.clear();
        }
    });
    receiver
}
