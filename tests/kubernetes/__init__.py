"""The Helm chart and the examples of infra/kubernetes: rendered, checked offline, admitted by a real API server, run as pods."""
