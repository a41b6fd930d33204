//! How does a person see that something moves? A spinner with the latest word on a terminal, one line per change in
//! a pipe or a workflow's log, nothing where a program reads.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::screen::Screen;

/// The progress of one wait.
pub(crate) struct Progress {
    spinner: Option<ProgressBar>,
    last: String,
}

impl Progress {
    /// Progress in the form that fits where answers go.
    pub(crate) fn new(screen: &Screen) -> Self {
        let spinner = (screen.live && !screen.format.for_programs()).then(|| {
            let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}");
            let style = style.expect("the template names only what indicatif knows");
            let spinner = ProgressBar::new_spinner().with_style(style);
            spinner.enable_steady_tick(Duration::from_millis(120));
            spinner
        });
        Self { spinner, last: String::new() }
    }

    /// Shows the latest word.
    pub(crate) fn show(&mut self, screen: &mut Screen, line: &str) {
        if line == self.last {
            return;
        }
        line.clone_into(&mut self.last);
        match &self.spinner {
            Some(spinner) => spinner.set_message(line.to_owned()),
            None => screen.say(line),
        }
    }

    /// Ends it; on a terminal the last word stays.
    pub(crate) fn finish(&self) {
        if let Some(spinner) = &self.spinner {
            spinner.abandon();
        }
    }
}
