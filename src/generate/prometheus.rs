//! A scrape configuration and alert rules for Prometheus.

/// Two YAML documents: a part of `prometheus.yml`, and a file of rules.
pub(super) const RULES: &str = r#"# Part of prometheus.yml, down to the line of dashes. The token's line in the tokens file:
#   fabric-mcp --generate token prometheus metrics
scrape_configs:
  - job_name: fabric-mcp
    authorization:
      # Or credentials_file: with a file that holds the token alone.
      credentials: TOKEN
    static_configs:
      - targets: ["127.0.0.1:8000"]
---
# A file of its own, which rule_files: names.
groups:
  - name: fabric-mcp
    rules:
      - alert: FabricMcpDown
        expr: up{job="fabric-mcp"} == 0
        for: 2m
        labels:
          severity: critical
        annotations:
          summary: "fabric-mcp on {{ $labels.instance }} does not answer, or refuses the token of Prometheus"
      - alert: FabricDown
        expr: fabric_mcp_fabric_up == 0
        for: 5m
        labels:
          severity: critical
        annotations:
          summary: "fabric-mcp on {{ $labels.instance }} cannot reach Fabric, or Fabric refuses its key"
      - alert: FabricMcpRunsFail
        expr: |
          sum by (instance) (rate(fabric_mcp_fabric_errors_total[15m]))
            / sum by (instance) (rate(fabric_mcp_calls_total[15m])) > 0.2
        for: 15m
        labels:
          severity: warning
        annotations:
          summary: "{{ $value | humanizePercentage }} of the calls on {{ $labels.instance }} fail because of Fabric"
      - alert: FabricMcpBusy
        expr: sum by (instance) (rate(fabric_mcp_calls_total{outcome="too-many-requests"}[15m])) > 0
        for: 15m
        labels:
          severity: warning
        annotations:
          summary: "fabric-mcp on {{ $labels.instance }} refuses calls: --max-runs or a limit per caller is reached"
      - alert: FabricMcpMemory
        expr: fabric_mcp_memory_bytes / fabric_mcp_memory_limit_bytes > 0.9
        for: 5m
        labels:
          severity: warning
        annotations:
          summary: "fabric-mcp on {{ $labels.instance }} has almost used up --max-memory"
      - alert: FabricMcpCallersRefused
        expr: sum by (instance, reason) (rate(fabric_mcp_callers_refused_total{reason!="no_token"}[15m])) > 1
        for: 15m
        labels:
          severity: warning
        annotations:
          summary: "{{ $labels.instance }} turns away callers: {{ $labels.reason }}"
      - alert: FabricMcpFiles
        expr: process_open_fds{job="fabric-mcp"} / process_max_fds{job="fabric-mcp"} > 0.8
        for: 5m
        labels:
          severity: warning
        annotations:
          summary: "fabric-mcp on {{ $labels.instance }} has almost no files left to open: raise LimitNOFILE="
"#;
