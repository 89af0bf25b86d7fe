//! Tests at a pseudo-terminal, which `script` (of util-linux) creates.

use super::*;

struct Terminal {
    child: std::process::Child,
    seen: String,
}

impl Terminal {
    fn run(args: &[&str]) -> Self {
        // `timeout` ends a program that waits for a key.
        let program = ["timeout", "--foreground", "60", env!("CARGO_BIN_EXE_mrtr")];
        Self::run_command(&[&program, args].concat().join(" "))
    }

    /// Runs a command of the shell.
    fn run_command(command: &str) -> Self {
        let child = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", command, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, seen: String::new() }
    }

    /// Reads until the screen has shown `shown`, then types `typed`.
    fn at(&mut self, shown: &str, typed: &str) -> &mut Self {
        let mut byte = [0];
        while !self.seen.contains(shown) {
            let read = self.child.stdout.as_mut().unwrap().read(&mut byte).unwrap();
            assert_eq!(read, 1, "the output ended without {shown:?}: {}", self.seen);
            self.seen.push(char::from(byte[0]));
        }
        // The server's texts contain sequences that write to the clipboard and set colours.
        assert!(
            !self.seen.contains("\u{1b}]52") && !self.seen.contains("\u{1b}[31m"),
            "{}",
            self.seen
        );
        // The next call looks only at later output.
        self.seen.clear();
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(typed.as_bytes()).unwrap();
        stdin.flush().unwrap();
        self
    }

    /// Returns what the screen shows next, up to `end`.
    fn text_before(&mut self, end: u8) -> String {
        let (mut text, mut byte) = (String::new(), [0]);
        loop {
            assert_eq!(self.child.stdout.as_mut().unwrap().read(&mut byte).unwrap(), 1, "{text}");
            if byte == [end] {
                return text;
            }
            text.push(char::from(byte[0]));
        }
    }

    fn end(&mut self) -> (String, Option<i32>) {
        let mut rest = String::new();
        drop(self.child.stdin.take());
        self.child.stdout.as_mut().unwrap().read_to_string(&mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }
}

const DOWN: &str = "\u{1b}[B";

#[test]
fn user_fills_in_forms_and_consents() {
    let url = serve();
    let mut terminal = Terminal::run(&["call", &url, "book", "--arg", "people=2"]);
    let host = url.split('/').nth(2).unwrap();
    terminal
        .at(&format!("{host} (tool book)"), "")
        .at("Dismiss", "\r")
        .at("outside", &format!("{DOWN}\r"))
        .at("Dismiss", "\r")
        .at("Name of the guest", "A\r")
        // The program asks again, with the reason.
        .at("at least 2", "")
        .at("Dismiss", "\r")
        .at("Name of the guest", "Ada\r")
        .at("https://booking.example/confirm?x=1", "")
        // In bold.
        .at("host  \u{1b}[1mbooking.example", "")
        .at("Dismiss", &format!("{DOWN}\r"));
    let (rest, code) = terminal.end();
    assert!(rest.contains("A table Outside for 2: Ada."), "{rest}");
    assert_eq!(code, Some(0));
}

#[test]
fn user_changes_answers_before_they_are_sent() {
    #[derive(Deserialize, JsonSchema)]
    struct Address {
        name: String,
        city: String,
    }
    let ask = async |cx: Context| {
        let Address { name, city } = cx.elicit("address", "Where to?").await?;
        Ok::<_, Error>(format!("{name} in {city}"))
    };
    let url = serve_tool(move || Tool::new("ship", "Ships", ask));
    let mut terminal = Terminal::run(&["call", &url, "ship"]);
    terminal
        .at("Dismiss", "\r")
        .at("name", "Adda\r")
        // A field that is required can be left, too.
        .at("city", "\r")
        .at("Dismiss", "\r")
        .at("city", "Bern\r")
        .at("Change city: Bern", &format!("{DOWN}\r"))
        .at("name", "Ada\r")
        .at("Change name: Ada", "")
        .at("Dismiss", "\r");
    let (rest, code) = terminal.end();
    assert!(rest.contains("Ada in Bern"), "{rest}");
    assert_eq!(code, Some(0));
}

#[test]
fn host_with_encoded_letters_comes_with_a_warning() {
    for (host, is_encoded) in [("xn--pple-43d.example", true), ("apple.example", false)] {
        let log_in = move |cx: Context| async move {
            cx.elicit_url("page", "Log in", format!("https://{host}/")).await?;
            Ok::<_, Error>("done")
        };
        let url = serve_tool(move || Tool::new("log_in", "Logs in", log_in));
        let mut terminal = Terminal::run(&["call", &url, "log_in"]);
        if is_encoded {
            terminal.at("letters (xn--)", "");
        }
        let (rest, code) = terminal.at("Dismiss", "\r").end();
        assert!(!rest.contains("xn--)") && code == Some(1), "{rest}");
    }
}

#[test]
fn user_declines() {
    let mut terminal = Terminal::run(&["call", &serve(), "book", "--arg", "people=2"]);
    terminal.at("Dismiss", &format!("{DOWN}\r"));
    let (rest, code) = terminal.end();
    assert!(rest.contains("declined"), "{rest}");
    assert_eq!(code, Some(1), "the tool failed");
}

#[test]
fn ctrl_c_at_a_menu_shows_the_cursor_again() {
    let mut terminal = Terminal::run(&["call", &serve(), "book", "--arg", "people=2"]);
    let (rest, code) = terminal.at("Dismiss", "\u{3}").end();
    assert!(rest.ends_with("\u{1b}[?25h"), "{rest:?}");
    assert_eq!(code, Some(130));
}

/// The shell would not show what the user types.
#[test]
fn signal_at_a_menu_restores_the_terminal() {
    let (url, program) = (serve(), env!("CARGO_BIN_EXE_mrtr"));
    let call = format!("sh -c 'echo pid $$.; exec {program} call {url} book --arg people=2'");
    let mut terminal = Terminal::run_command(&format!("{call}; stty -a"));
    let pid = terminal.at("pid ", "").text_before(b'.');
    terminal.at("Dismiss", "");
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    let (rest, _) = terminal.end();
    assert!(rest.contains(" icanon") && rest.contains(" echo "), "{rest}");
}

#[test]
fn signal_at_a_menu_of_dev_restores_the_terminal() {
    let project = dev::Project::new("dev-signal");
    let (folder, program) = (project.0.display(), env!("CARGO_BIN_EXE_mrtr"));
    let dev = format!("exec {program} dev --example shop -- gateway servers.json");
    let dev = format!("sh -c 'echo pid $$.; cd {folder}; export CARGO={folder}/cargo; {dev}'");
    let mut terminal = Terminal::run_command(&format!("{dev}; stty -a"));
    let pid = terminal.at("pid ", "").text_before(b'.');
    terminal.at("to exit.", "shop__greet\n").at("Dismiss", "");
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    let (rest, _) = terminal.end();
    assert!(rest.contains(" icanon") && rest.contains(" echo "), "{rest}");
}

/// `timeout` runs its program in the background of the terminal, whose mode only programs in the
/// foreground may set.
#[test]
fn signal_ends_a_program_in_the_background() {
    let url = serve_tool(|| Tool::new("wait", "Waits", std::future::pending::<&str>));
    let program = env!("CARGO_BIN_EXE_mrtr");
    let call = format!("sh -c 'echo pid $$.; exec {program} call {url} wait --trace'");
    let mut terminal =
        Terminal::run_command(&format!("timeout --kill-after 1 20 {call}; echo code $?."));
    let pid = terminal.at("pid ", "").text_before(b'.');
    terminal.at("tools/call", "");
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    assert_eq!(terminal.at("code ", "").text_before(b'.'), "143", "137 if it had to be killed");
}

#[test]
fn ctrl_c_leaves_no_file_of_a_call_that_was_not_paused() {
    let url = serve_tool(|| Tool::new("wait", "Waits", std::future::pending::<&str>));
    let folder = scratch("interrupted");
    let file = folder.join("call.json");
    let args = ["call", &url, "wait", "--trace", "--pause", file.to_str().unwrap()];
    let (rest, code) = Terminal::run(&args).at("tools/call", "\u{3}").end();
    assert_eq!(code, Some(130), "{rest}");
    assert_eq!(folder.read_dir().unwrap().count(), 0);
}

#[test]
fn installation_is_asked_for() {
    let file = std::env::temp_dir().join(format!("mrtr-asked-{}.json", std::process::id()));
    let args = ["install", "cursor", "s", "--file", file.to_str().unwrap(), "--", "s"];
    for (answer, is_written) in [("\n", false), ("n\n", false), ("y\n", true)] {
        let mut terminal = Terminal::run(&args);
        let (_, code) = terminal.at("[y/N]", answer).end();
        assert_eq!((code, file.exists()), (Some(0), is_written), "{answer:?}");
    }
    std::fs::remove_file(file).unwrap();
}
