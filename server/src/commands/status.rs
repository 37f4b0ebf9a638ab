//! `tributary status`: shows the state of a server and its clusters, once or live.

mod screen;

use std::io::IsTerminal;
use std::pin::pin;
use std::time::Duration;

use terminal_size::{Height, Width};
use tokio::time::Instant;
use tributary_router::{Report, report};

use super::running_server::{Page, RunningServer};
use crate::cli::{OutputFormat, StatusArguments};
use crate::exit::Failure;
use crate::output::print;
use crate::output::terminal::{cut, plain, plain_json};
use screen::{COLUMNS_MAX, render};

/// The interval of the live screen, as in `watch`. A report costs the server some milliseconds.
const INTERVAL: Duration = Duration::from_secs(2);

/// The escape sequence that moves the cursor to the top left corner.
const HOME: &str = "\x1b[H";
/// The escape sequence that clears the remainder of the line, and begins the next line.
const NEXT_LINE: &str = "\x1b[K\r\n";
/// The escape sequence that clears the remainder of the screen.
const CLEAR_BELOW: &str = "\x1b[J";

/// Prints the state of a server and its clusters: once, or repeatedly on a terminal until Ctrl-C.
///
/// # Errors
/// A usage failure for an invalid kubeconfig, and a runtime failure if the server returns no report.
pub async fn status(arguments: StatusArguments) -> Result<(), Failure> {
    let server = RunningServer::from_kubeconfig(arguments.kubeconfig.as_deref(), arguments.context.as_deref()).await?;
    let text = server.fetch_page(&page()).await?;
    let report = read(&server, &text)?;
    match arguments.output {
        OutputFormat::Json => print(&json(&text)),
        OutputFormat::Table if arguments.once || !std::io::stdout().is_terminal() => {
            print(&lines(render(&report, COLUMNS_MAX)));
        }
        OutputFormat::Table => live(&server, report).await,
    }
    Ok(())
}

fn page() -> Page {
    Page { path: report::PATH, query: String::new(), label: "its report" }
}

fn read(server: &RunningServer, text: &str) -> Result<Report, Failure> {
    serde_json::from_str(text).map_err(|_| server.is_another("the answer is not a report"))
}

/// Formats the server's report, including fields that only a newer server knows.
fn json(text: &str) -> String {
    let value = serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
    plain_json(&format!("{value:#}\n"))
}

fn lines(lines: Vec<String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Shows the report and its updates until Ctrl-C. A lost connection to the server is opened again.
async fn live(server: &RunningServer, mut report: Report) {
    let (mut answered, mut problem) = (Instant::now(), None);
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    loop {
        let (columns, rows) = size();
        let mut shown = render(&report, columns);
        if let Some(problem) = &problem {
            let ago = answered.elapsed().as_secs();
            shown.insert(0, cut(&plain(&format!("No answer for {ago} s; last known problem: {problem}")), columns));
        }
        print(&frame(shown, rows));
        let next = async {
            tokio::time::sleep(INTERVAL).await;
            server.fetch_page(&page()).await.and_then(|text| read(server, &text))
        };
        let next = tokio::select! {
            _ = &mut interrupted => break,
            next = next => next,
        };
        match next {
            Ok(newer) => (report, answered, problem) = (newer, Instant::now(), None),
            Err(failure) => problem = Some(failure.to_string()),
        }
    }
    print("\r\n");
}

/// Returns the columns and rows of the terminal.
fn size() -> (usize, usize) {
    let (Width(columns), Height(rows)) = terminal_size::terminal_size().unwrap_or((Width(80), Height(24)));
    (usize::from(columns).min(COLUMNS_MAX), usize::from(rows))
}

/// Returns the lines of a screen, cut to the rows of the terminal.
fn frame(mut lines: Vec<String>, rows: usize) -> String {
    let room = rows.saturating_sub(1).max(1);
    if lines.len() > room {
        let more = lines.len() + 1 - room;
        lines.truncate(room - 1);
        lines.push(format!("… and {more} more lines: tributary status --once"));
    }
    let body: String = lines.into_iter().map(|line| line + NEXT_LINE).collect();
    format!("{HOME}{body}{CLEAR_BELOW}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_frame_has_no_more_lines_than_the_terminal() {
        let lines = |count: usize| (0..count).map(|number| format!("line {number}")).collect::<Vec<_>>();
        assert_eq!(frame(lines(2), 3), "\x1b[Hline 0\x1b[K\r\nline 1\x1b[K\r\n\x1b[J");
        let cut = frame(lines(9), 4);
        assert_eq!(cut.matches('\n').count(), 3);
        assert!(cut.contains("line 1\x1b") && cut.contains("… and 7 more lines"), "{cut:?}");
        assert_eq!(frame(lines(9), 0).matches('\n').count(), 1);
    }
}
