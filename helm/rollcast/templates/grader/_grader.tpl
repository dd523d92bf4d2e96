{{/* Whether gradings leave the generators: to the chart's own graders, or to others. */}}
{{- define "rollcast.gradesRemotely" -}}
{{- if or .Values.grader.enabled .Values.grader.external.host -}}true{{- end -}}
{{- end -}}

{{/* What generators present and graders ask for. */}}
{{- define "rollcast.graderToken" -}}
{{- $secret := .Values.grader.enabled | ternary (include "rollcast.secretName" .) .Values.grader.external.tokenSecret -}}
{{- with $secret -}}
- name: ROLLCAST_GRADER_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ . | quote }}
      key: grader-token
{{- end -}}
{{- end -}}

{{/* Its part of the run file; a RuntimeClass is taken for one of gVisor unless config.grader.sandbox says otherwise. */}}
{{- define "rollcast.graderSettings" -}}
{{- $grader := .Values.grader -}}
{{- if $grader.enabled -}}
host: {{ include "rollcast.fullname" . }}-grader
port: 7432
bind: {{ .Values.networking.bind | quote }}
http_port: 8404
{{- if not (include "rollcast.setting" (list . "grader.sandbox")) }}
sandbox: {{ empty $grader.runtimeClassName | ternary "strict" "gvisor" }}
{{- end }}
{{- else -}}
host: {{ $grader.external.host | quote }}
port: {{ int $grader.external.port }}
{{- end -}}
{{- end -}}
