{{/* Fast up, slow down: a generator takes minutes to start and its work must drain. */}}
{{- define "rollcast.scalingBehavior" -}}
{{- $tolerance := include "rollcast.hpaTolerance" . -}}
scaleUp:
  stabilizationWindowSeconds: 0
  {{- with $tolerance }}
  tolerance: {{ . | quote }}
  {{- end }}
  policies:
    - {type: Percent, value: 100, periodSeconds: 30}
    - {type: Pods, value: 4, periodSeconds: 30}
  selectPolicy: Max
scaleDown:
  # The autoscaler itself has waited scaleDown.stabilizationSeconds before it asked for fewer and marked the idlest pods; a
  # second window would let the marks grow old.
  stabilizationWindowSeconds: 0
  {{- with $tolerance }}
  tolerance: {{ . | quote }}
  {{- end }}
  policies:
    - {type: Pods, value: 1, periodSeconds: {{ .Values.autoscaler.scaleDown.everySeconds }}}
{{- end -}}

{{/* What the run file says that the HPA ignores; empty = its own default, or a cluster that does not know the field. */}}
{{- define "rollcast.hpaTolerance" -}}
{{- $tolerance := include "rollcast.setting" (list . "autoscaler.hpa_tolerance") -}}
{{- if and (ne $tolerance "") (semverCompare ">=1.33-0" .Capabilities.KubeVersion.Version) -}}
{{- $tolerance -}}
{{- end -}}
{{- end -}}
