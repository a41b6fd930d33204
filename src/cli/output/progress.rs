//! Shows progress: a spinner with the latest message on a terminal, one line per change in a pipe or a workflow's log,
//! and on stderr if a program reads the output.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

use super::screen::Screen;
use crate::common::duration;
use crate::output::format::plain;

/// The progress of one wait.
pub(crate) struct Progress {
    spinner: Option<ProgressBar>,
    last: String,
    begun: Instant,
    shown: Instant,
}

/// The longest silence in a log: its reader must see that the wait continues, and what it waits for.
const SILENCE: Duration = Duration::from_secs(30);

impl Progress {
    /// Creates the progress display that fits the screen.
    pub(crate) fn new(screen: &Screen) -> Self {
        let spinner = (screen.live && !screen.format.for_programs() && !screen.quiet).then(|| {
            let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}");
            let style = style.expect("the template names only what indicatif knows");
            let spinner = ProgressBar::new_spinner().with_style(style);
            spinner.enable_steady_tick(Duration::from_millis(120));
            spinner
        });
        let now = Instant::now();
        Self { spinner, last: String::new(), begun: now, shown: now }
    }

    /// Shows the latest message; a log repeats an unchanged message after `SILENCE`.
    pub(crate) fn show(&mut self, screen: &mut Screen, line: &str) {
        if line == self.last && self.shown.elapsed() < SILENCE {
            return;
        }
        let again = line == self.last;
        line.clone_into(&mut self.last);
        self.shown = Instant::now();
        match &self.spinner {
            Some(spinner) => spinner.set_message(plain(line)),
            None if again => {
                screen.progress(&format!("{line} (for {} now)", duration::show(self.begun.elapsed())));
            }
            None => screen.progress(line),
        }
    }

    /// Ends the display; on a terminal the last message remains.
    pub(crate) fn finish(&self) {
        if let Some(spinner) = &self.spinner {
            spinner.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::format::Format;

    #[tokio::test(start_paused = true)]
    async fn a_log_says_each_change_and_the_same_again_every_half_minute() {
        let (mut screen, written) = Screen::kept(Format::Text);
        let mut progress = Progress::new(&screen);
        for word in ["Pending", "Pending", "Ready"] {
            progress.show(&mut screen, word);
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        for _ in 0..7 {
            progress.show(&mut screen, "Ready");
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        assert_eq!(written(), "Pending\nReady\nReady (for 1m10s now)\nReady (for 1m40s now)\n");
        let (mut screen, written) = Screen::kept(Format::Text);
        screen.quiet = true;
        Progress::new(&screen).show(&mut screen, "Pending");
        assert_eq!(written(), "", "-q says the answer alone");
    }
}
