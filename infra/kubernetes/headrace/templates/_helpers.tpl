{{- /* What names of resources begin with. */ -}}
{{- define "headrace.name" -}}
{{- .Values.fullnameOverride | default .Release.Name -}}
{{- end -}}

{{- /* Labels that select the pods of one thing: (dict "root" $ "part" "edge" "instance" NAME). */ -}}
{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- with .instance }}
headrace/edge: {{ . }}
{{- end }}
{{- end -}}

{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "headrace.image" -}}
{{- $image := index .root.Values.images .part -}}
{{- $where := required (printf "images.%s.repository is empty: name your registry's image, such as registry.example/headrace-%s (docs/deploy.md has how it is built)" .part .part) $image.repository -}}
{{- printf "%s:%s" $where ($image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}

{{- /* Fails where a file and the values do not fit: (dict "file" TEXT "at" "edges.x" "values" VALUES "given" LIST "listen" PORT). */ -}}
{{- define "headrace.check" -}}
{{- $at := .at -}}
{{- $file := required (printf "%s.configuration is empty: give the file (TOML), by --set-file or in the values" $at) .file -}}
{{- $given := concat (.given | default list) (keys (.values.environment | default dict)) (keys (.values.variables | default dict)) -}}
{{- range regexFindAll "\"env:[^\"]*\"" $file -1 -}}
{{- $name := trimSuffix "\"" (trimPrefix "\"env:" .) -}}
{{- if not (has $name $given) -}}
{{- fail (printf "%s.configuration refers to the variable %s: name its Secret in %s.environment, as in %s: { secret: SECRET, key: KEY }" $at $name $at $name) -}}
{{- end -}}
{{- end -}}
{{- $mounted := keys (.values.secrets | default dict) -}}
{{- range regexFindAll "/secrets/[^/\"]+" $file -1 -}}
{{- $name := trimPrefix "/secrets/" . -}}
{{- if not (has $name $mounted) -}}
{{- fail (printf "%s.configuration refers to files in /secrets/%s: name their Secret in %s.secrets, as in %s: SECRET" $at $name $at $name) -}}
{{- end -}}
{{- end -}}
{{- range regexFindAll "(?m)^\\s*(password|token|hash_key)\\s*=\\s*[\"'].*$" $file -1 -}}
{{- if not (regexMatch "=\\s*[\"'](env|file|command):" .) -}}
{{- fail (printf "%s.configuration has a secret in the clear (%s): refer to it as \"env:NAME\" or \"file:/secrets/NAME/KEY\"" $at (regexFind "[a-z_]+" .)) -}}
{{- end -}}
{{- end -}}
{{- with .listen -}}
{{- if not (regexMatch (printf "(?m)^\\s*listen\\s*=\\s*\"(0\\.0\\.0\\.0)?:%s\"" .) $file) -}}
{{- fail (printf "%s.configuration has no [metrics] listen = \"0.0.0.0:%s\": the probes ask it" $at .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The variables of a container: (dict "environment" MAP "variables" MAP). */ -}}
{{- define "headrace.environment" -}}
- name: HEADRACE_LOG_FORMAT
  value: json
{{- range $name, $text := .variables }}
- name: {{ $name }}
  value: {{ $text | quote }}
{{- end }}
{{- range $name, $from := .environment }}
- name: {{ $name }}
  valueFrom: { secretKeyRef: { name: {{ $from.secret | quote }}, key: {{ $from.key | quote }} } }
{{- end }}
{{- end -}}

{{- define "headrace.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "headrace.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{- define "headrace.mounts" -}}
- { name: configuration, mountPath: /etc/headrace, readOnly: true }
- { name: tmp, mountPath: /tmp }
{{- range $name := keys (.secrets | default dict) | sortAlpha }}
- { name: {{ printf "secret-%s" $name }}, mountPath: {{ printf "/secrets/%s" $name }}, readOnly: true }
{{- end }}
{{- end -}}

{{- /* (dict "map" NAME-OF-CONFIGMAP "secrets" MAP "tmp" SIZE) */ -}}
{{- define "headrace.volumes" -}}
- name: configuration
  configMap: { name: {{ .map }} }
{{ include "headrace.temporary" . }}
{{- end -}}

{{- /* What a pod has besides its files: /tmp and Secrets. */ -}}
{{- define "headrace.temporary" -}}
- name: tmp
  emptyDir: { sizeLimit: {{ .tmp }} }
{{- range $name, $secret := .secrets }}
- name: secret-{{ $name }}
  secret: { secretName: {{ $secret | quote }}, defaultMode: 288 }
{{- end }}
{{- end -}}

{{- /* What a part's probes ask. The first start may wait for a busy node. */ -}}
{{- define "headrace.probes" -}}
startupProbe:
  httpGet: { path: /health/live, port: metrics }
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /health/live, port: metrics }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: { path: /health/ready, port: metrics }
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{- /* Where pods run: (dict "values" VALUES). */ -}}
{{- define "headrace.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "headrace.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}
