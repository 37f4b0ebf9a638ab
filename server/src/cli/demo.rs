//! The command line of `tributary demo`.

use clap::Args;
use tributary_listener::ListenAddress;

pub(super) const EXAMPLES: &str = "Examples:
  tributary demo
  tributary demo --clusters 20 --pods 5000 --churn 50
  tributary demo --listen 127.0.0.1:7443";

/// The arguments of `demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArguments {
    /// Number of simulated clusters
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub clusters: u16,
    /// Number of pods in each cluster
    #[arg(long, value_name = "N", default_value = "2000", value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    pub pods: u32,
    /// Changes per second in each cluster; 0 for no changes
    #[arg(long, value_name = "RATE", default_value = "2", value_parser = parse_rate)]
    pub churn: f64,
    /// The loopback address to listen on; port 0 selects a free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0", value_parser = loopback)]
    pub listen: ListenAddress,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    /// The maximum rate of changes. A simulated cluster cannot reach this rate.
    const RATE_MAX: f64 = 100_000.0;
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=RATE_MAX).contains(&rate) => Ok(rate),
        _ => Err(format!("must be a number between 0 and {RATE_MAX}")),
    }
}

/// Parses a loopback address. The demo has its own error message, because the message of `serve` names flags that the
/// demo does not have.
fn loopback(text: &str) -> Result<ListenAddress, String> {
    let address = text.parse::<ListenAddress>().map_err(|error| error.to_string())?;
    let port = address.socket_address().port();
    address.without_client_authentication().map_err(|_| {
        format!(
            "{address} is not a loopback address, and only this machine can use the demo; listen on 127.0.0.1:{port}, and \
             connect from a different machine with `ssh -L {port}:127.0.0.1:{port} HOST`"
        )
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::{Cli, Command};

    #[test]
    fn listen_error_names_only_flags_of_the_demo() {
        let parse = |listen: &str| Cli::try_parse_from(["tributary", "demo", "--listen", listen]);
        assert!(matches!(parse("127.0.0.1:0").unwrap().command, Command::Demo(_)));
        let said = parse("0.0.0.0:7443").unwrap_err().to_string();
        assert!(said.contains("listen on 127.0.0.1:7443") && said.contains("ssh -L"), "{said}");
        assert!(!said.contains("client-ca-file") && !said.contains("kubeconfig"), "{said}");
    }
}
