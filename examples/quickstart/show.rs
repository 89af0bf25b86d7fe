//! What a person sees.

use std::io::IsTerminal;

/// Writes to the terminal, in colour if it is one.
#[derive(Clone)]
pub struct Show {
    colour: bool,
}

impl Show {
    pub fn new() -> Self {
        Self { colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    pub fn title(&self, name: &str, what: &str) {
        println!("\n  {}  {}\n", self.bold(name), self.dim(what));
    }

    pub fn line(&self, name: &str, text: &str) {
        println!("  {name:<12} {}", self.dim(text));
    }

    pub fn call(&self, tool: &str, arguments: &str) {
        println!("\n  {} {tool} {}", self.bold("call"), self.dim(arguments));
    }

    /// A leg: who served it, what ran, what was asked, and what travels on.
    pub fn leg(
        &self,
        leg: usize,
        replica: char,
        steps: &[(String, char)],
        asks: &[(String, String)],
        state: Option<&str>,
    ) {
        println!(
            "\n  {} {}",
            self.bold(&format!("leg {leg}")),
            self.paint("36", &format!("replica {replica}"))
        );
        for (step, by) in steps {
            println!(
                "      ran    {} {}",
                self.paint("32", step),
                self.dim(&format!("on replica {by}"))
            );
        }
        for (key, message) in asks {
            println!("      asks   {} {}", self.paint("33", &format!("{key:<8}")), message);
        }
        match state {
            Some(state) => {
                let start: String = state.chars().take(12).collect();
                let end = state.get(state.len() - 8..).unwrap_or_default();
                let text = format!("{} bytes, sealed: {start}…{end}", state.len());
                println!("      state  {}", self.dim(&text));
            }
            None => println!("      done   {}", self.dim("no state is left")),
        }
    }

    pub fn question(&self, message: &str) {
        println!("\n    {} {}", self.paint("33", "?"), self.bold(message));
    }

    pub fn hint(&self, text: &str) {
        println!("      {}", self.paint("31", text));
    }

    pub fn answer(&self, key: &str, answer: &str) {
        println!("      answer {} {answer}", self.paint("33", &format!("{key:<8}")));
    }

    pub fn killed(&self, name: char, pid: u32) {
        println!(
            "\n  {} replica {name} {}",
            self.paint("31", "SIGKILL"),
            self.dim(&format!("pid {pid}: whatever it knew is gone"))
        );
    }

    pub fn result(&self, text: &str) {
        println!("\n  {} {text}\n", self.bold("result"));
    }

    pub fn failure(&self, text: &str) {
        println!("\n  {} {text}\n", self.paint("31", "failed"));
    }

    /// Shows what had to be true; true if it was.
    pub fn verdict(&self, facts: &[(bool, String)]) -> bool {
        for (ok, fact) in facts {
            let mark = if *ok { self.paint("32", "✓") } else { self.paint("31", "✗") };
            println!("  {mark} {fact}");
        }
        println!();
        facts.iter().all(|(ok, _)| *ok)
    }
}
