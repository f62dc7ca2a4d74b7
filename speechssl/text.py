"""What counts as the same word when text is scored: normal forms and tokens; Chinese character forms and readings.

Two normal forms. `normalise` is for recognition errors (WER, CER); `normalise_answer` is for the text of an answer (exact match
and F1). Languages are `en` (words) and `zh` (characters); a tag such as `en-gb` or `zh-TW` is read as its first part, and `cmn`
(Mandarin) as `zh` (`language_of`).

Chinese characters are compared without regard to their form (FORMS): traditional, simplified and regional forms of one character
are one. The relation is that of OpenCC's tables (github.com/BYVoid/OpenCC, Apache-2.0: TSCharacters, TWVariants, HKVariants),
character by character, with a few more forms that corpora mix. Characters that one simplified form stands for are all one: 發 and
髮 are 发, 後 and 后 are 后; an answer that differs in such a character only is forgiven. Words that differ by region (軟體, 软件)
are different words. OpenCC's own t2s (1.4) is not used: of the 2,979 forms here it leaves 23 as they are (著 and 瞭 among
them), gives 5 another form, and folds 2,163 rare ones more.

Readings are those of each character by itself: of a character with several readings the commonest is taken.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from speechssl.errors import InputError, MissingExtra

T = TypeVar("T")

# British -> American, the frequent part of Whisper's list: recognisers write either, and neither is an error.
_SPELLINGS = """
    colour/color colours/colors favour/favor favourite/favorite flavour/flavor harbour/harbor honour/honor
    humour/humor labour/labor neighbour/neighbor neighbours/neighbors rumour/rumor behaviour/behavior
    centre/center centres/centers theatre/theater metre/meter metres/meters litre/liter litres/liters
    kilometre/kilometer kilometres/kilometers fibre/fiber defence/defense offence/offense licence/license
    grey/gray travelled/traveled traveller/traveler travelling/traveling cancelled/canceled jewellery/jewelry
    programme/program programmes/programs catalogue/catalog dialogue/dialog organise/organize
    organised/organized organisation/organization recognise/recognize recognised/recognized realise/realize
    realised/realized plough/plow tyre/tire cheque/check aeroplane/airplane mould/mold sceptical/skeptical
"""
SPELLINGS = dict(pair.split("/") for pair in _SPELLINGS.split())

_RUN = r"(?:[0-9a-z\u00c0-\u024f]|(?<=[0-9])\.(?=[0-9]))+"  # letters and digits of the Latin script; 3.5 is one run
_ZH_TOKEN = re.compile(rf"{_RUN}|\S")
_PIECE, _ZH_PIECE = re.compile(r"\S+"), re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+|[^\w\s]")
_MARK = re.compile(r"(?<![0-9])\.|\.(?![0-9])|[^\w\s.]|_")  # punctuation and symbols, but not the point of a number
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_APOSTROPHES = str.maketrans("’‘ʼ", "'''")


def normalise(text: str, language: str) -> str:
    """The form in which recognised words are compared with the reference.

    en: Whisper's English normaliser (arXiv 2212.04356, appendix C) after typographic apostrophes are made plain. It
    writes contractions out, drops hesitations, and turns number words into digits ("twenty one" and "21" are the same).
    Apply it to both sides. It joins successive digit words ("two three" becomes "23") but not successive digits ("2 3"
    stays), so a transcript of digit strings should be spelled out on both sides.
    zh: NFKC (full-width letters and digits are plain ones), lower case, the forms of a character folded to one of them (爲 and 為
    to 为, 裏 and 裡 to 里, 著 to 着: FORMS), punctuation removed, no white space but between Latin runs. Not folded: numerals
    (三 is not 3), and words that differ by region (計程車, 出租车).
    Raises InputError for another language.
    """
    if language_of(language) == "en":
        words = _whisper()(text.translate(_APOSTROPHES)).split()
        return " ".join(word for word in words if any(map(str.isalnum, word)))  # it leaves the last point of "a ..." behind
    folded = unicodedata.normalize("NFKC", text).lower().translate(FORMS)
    found = _ZH_TOKEN.findall(_MARK.sub(" ", folded))
    joined = found[:1]
    for left, right in pairwise(found):  # no white space but for one space between two Latin runs, which would merge
        joined.append(f" {right}" if re.fullmatch(_RUN, left[-1]) and re.match(_RUN, right) else right)
    return "".join(joined)


def tokens(text: str, language: str) -> list[str]:
    """What WER (en: words) or CER (zh: characters, a Latin run kept as one) counts, after `normalise`."""
    plain = normalise(text, language)
    return _of_language(language, plain.split(), _ZH_TOKEN.findall(plain))


def error_metric(language: str) -> str:
    """What errors over `tokens` are called: "wer", or "cer" in Chinese. Raises InputError for another language."""
    return _of_language(language, "wer", "cer")


def pieces(text: str, language: str) -> list[tuple[str, int]]:
    """What is between white space (zh: every Chinese character, every sign, every run of other letters or digits), as it stands,
    with its offset.

    Raises InputError for another language.
    """
    return [(m.group(), m.start()) for m in _of_language(language, _PIECE, _ZH_PIECE).finditer(text)]


def joiner(language: str) -> str:
    """What stands between words: a space, or nothing (zh). Raises InputError for another language."""
    return _of_language(language, " ", "")


def spelt(text: str) -> str:
    """English as a recogniser of letters writes it: small letters, digits and plain apostrophes, words between single spaces.

    Nothing is rewritten (numbers, contractions), so that words are counted as the corpora of speech recognition count them.
    "&" is "and". A word without a letter or a digit is none.
    """
    plain = unicodedata.normalize("NFKC", text.translate(_APOSTROPHES)).lower().replace("&", " and ")
    words = "".join(c if c == "'" or unicodedata.category(c)[0] in "LMN" else " " for c in plain).split()
    return " ".join(word for word in words if any(map(str.isalnum, word)))


def normalise_answer(text: str, language: str) -> str:
    """The form in which the texts of answers are compared: tokens joined by single spaces.

    en: SQuAD v1.1's evaluation script: lower case, ASCII punctuation and articles removed, white space collapsed.
    zh: the characters of `normalise`, so that exact match does not see white space.
    Raises InputError for another language.
    """
    return " ".join(answer_tokens(text, language))


def answer_tokens(text: str, language: str) -> list[str]:
    """What the F1 of an answer counts: words (en) or characters (zh). Raises InputError for another language."""
    if language_of(language) == "zh":
        return tokens(text, "zh")
    return _ARTICLES.sub(" ", "".join(c for c in text.lower() if c not in string.punctuation)).split()


def language_of(tag: str) -> str:
    """The language by whose rules a tag is read: "zh" of zh-TW, cmn and cmn-Hant, "en" of en-gb. Raises InputError for another."""
    return _of_language(tag, "en", "zh")


def _of_language(language: str, english: T, chinese: T) -> T:
    tag = re.split("[-_]", language.lower())[0]
    rules = {"en": english, "zh": chinese, "cmn": chinese}
    if tag not in rules:
        raise InputError(f"there are no text rules for the language {language!r}; use en or zh, or add rules to speechssl/text.py")
    return rules[tag]


@lru_cache(1)
def _whisper() -> Callable[[str], str]:
    # Imported late: transformers takes a second, and Chinese or answer scoring does not need it.
    from transformers.models.whisper import english_normalizer

    make: Callable[[dict[str, str]], Callable[[str], str]] = english_normalizer.EnglishTextNormalizer
    return make(SPELLINGS)


def syllables(text: str) -> str:
    """Pinyin with the tone as a digit, 5 for the neutral one: 北京 is bei3jing1; what is no Chinese character stays as it is.

    Raises MissingExtra without the package.
    """
    return "".join(_pinyin(text, "TONE3", "readings of Chinese"))


def parts(text: str) -> list[str]:
    """Initial, final and tone of each character, as far as it has them: 北 is b-, -ei, 3.

    Raises MissingExtra without the package.
    """
    initials, finals = (_pinyin(text, style, "sub-word units of Chinese") for style in ("INITIALS", "FINALS_TONE3"))
    three = ((f"{i}-", f"-{f.rstrip('12345')}", f[-1:]) for i, f in zip(initials, finals, strict=True))
    return [unit for units in three for unit in units if unit.strip("-")]


def _pinyin(text: str, style: str, what: str) -> list[str]:
    try:
        import pypinyin
    except ImportError as error:
        raise MissingExtra(what, "chinese") from error
    return list(pypinyin.lazy_pinyin(text, getattr(pypinyin.Style, style), strict=False, neutral_tone_with_five=True))


# each group: the form that stands for it (simplified where there is one), then its other forms
_GROUPS = """
    㐷傌 㐹㑶 㐽偑 㑇㑳 㑈倲 㑔㑯 㑩儸 㓥劏 㔉劚 㖊噚 㖞喎 㘎㘚 㚯㜄 㛀媰 㛣㜏 㛤孋 㟆㠏 㟥嵾 㡎幓 㤘㥮 㤽懤 㥪慺 㧏掆 㧐㩳 㧑撝
    㧟擓 㧰擽 㨫㩜 㭎棡 㭏椲 㭤樢 㭴樫 㱩殰 㱮殨 㲿瀇 㳔濧 㳕灡 㳠澾 㳡濄 㴋潚 㶉鸂 㶶燶 㶽煱 㺍獱 㻅璯 䀥䁻 䁖瞜 䂵碽 䃅磾 䅉稏
    䅟穇 䇲筴 䉤籔 䌶䊷 䌷紬 䌸縳 䌹絅 䌺䋙 䌻䋚 䌼綐 䌾䋻 䌿䋹 䍀繿 䍁繸 䍠䍦 䎬䎱 䏝膞 䓓薵 䓕薳 䓖藭 䓨罃 䗖螮 䙌䙡 䜣訢 䜤鿁
    䜧䜀 䜩讌 䝙貙 䞍䝼 䞐賰 䟢躎 䥺釾 䥽鏺 䥾䥱 䦂䥇 䦃鐯 䦅鐥 䦶䦛 䦷䦟 䯄騧 䯅䯀 䲝䱽 䲟鮣 䲠鰆 䲡鰌 䲢鰧 䲣䱷 䴓鳾 䴔鵁 䴕鴷
    䴖鶄 䴗鶪 䴘鷉 䴙鸊 䶮龑 万萬 与與 丑醜 专專 业業 丛叢 东東 丝絲 丢丟 两兩 严嚴 丧喪 个個箇 丰豐 临臨 为為爲 丽麗 举舉
    么幺麼麽 义義 乌烏 乐樂 乔喬 习習 乡鄉 书書 买買 乱亂 了瞭 争爭 于於 亏虧 云雲 亘亙 亚亞 产產産 亩畝 亲親 亵褻 亸嚲 亿億 仅僅
    仆僕 从從 仑侖崙 仓倉 仪儀 们們 价價 仿彷 众眾衆 优優 伙夥 会會 伛傴 伞傘 伟偉 传傳 伡俥 伣俔 伤傷 伥倀 伦倫 伧傖 伪偽僞 伫佇
    体體 余餘 佛彿 佣傭 佥僉 侠俠 侣侶 侥僥 侦偵 侧側 侨僑 侩儈 侪儕 侬儂 俊儁 俣俁 俦儔 俨儼 俩倆 俪儷 俫倈 俭儉 修脩 借藉 债債
    倾傾 偬傯 偻僂 偾僨 偿償 傤儎 傥儻 傧儐 储儲 傩儺 僵殭 儿兒 克剋 兑兌 兖兗 党黨 兰蘭 关關 兴興 兹茲 养養 兽獸 冁囅 内內 冈岡
    册冊 写寫 军軍 农農 冢塚 冬鼕 冯馮 冲沖衝 决決 况況 冻凍 净凈淨 凄悽淒 准準 凉涼 凌淩 减減 凑湊 凛凜 几幾 凤鳳 凫鳧鳬 凭憑
    凯凱 凶兇 出齣 击擊 凿鑿 刍芻 划劃 刘劉 则則 刚剛 创創 删刪 别別彆 刬剗 刭剄 刮颳 制製 刹剎 刽劊 刾㓨 刿劌 剀剴 剂劑 剐剮 剑劍
    剥剝 剧劇 劝勸 办辦 务務 劢勱 动動 励勵 劲勁 劳勞 势勢 勋勛勳 勚勩 匀勻 匦匭 匮匱 区區 医醫 千韆 升昇陞 华華 协協 单單 卖賣
    卜蔔 占佔 卢盧 卤滷鹵 卧臥 卫衛衞 即卽 却卻 卷捲 卺巹 厂廠 厅廳 历厤曆歷 厉厲 压壓 厌厭 厍厙 厐龎 厕厠廁 厘釐 厢廂 厣厴 厦廈
    厨廚 厩廄 厮廝 县縣 叁叄 参參蔘 叆靉 叇靆 双雙 发發髮 变變 叙敍敘 叠疊 只祇衹隻 台枱檯臺颱 叶葉 号號 叹嘆歎 叽嘰 吁籲 吃喫
    合閤 吊弔 同衕 后後 向嚮曏 吓嚇 吕呂 吗嗎 吨噸 听聽 启啓啟 吴吳 呆獃 呐吶 呒嘸 呓囈 呕嘔 呖嚦 呗唄 员員 呙咼 呛嗆 呜嗚 周週
    咏詠 咙嚨 咛嚀 咝噝 咤吒 咨諮 咸鹹 咽嚥 哄鬨 响響 哑啞 哒噠 哓嘵 哔嗶 哕噦 哗嘩譁 哙噲 哜嚌 哝噥 哟喲 唇脣 唛嘜 唝嗊 唠嘮 唡啢
    唢嗩 唤喚 啧嘖 啬嗇 啭囀 啮嚙齧 啯嘓 啰囉 啴嘽 啸嘯 喂餵 喷噴 喽嘍 喾嚳 嗫囁 嗳噯 嘘噓 嘤嚶 嘱囑 噜嚕 噪譟 嚣囂 回迴 团團糰
    园園 困睏 囱囪 围圍 囵圇 国國 图圖 圆圓 圣聖 圹壙 场場 坂阪 坏壞 块塊 坚堅 坛墰壇壜罈罎 坜壢 坝垻壩 坞塢 坟墳 坠墜 垄壟 垅壠
    垆壚 垒壘 垦墾 垩堊 垫墊 垭埡 垯墶 垱壋 垲塏 垴堖 埘塒 埙塤壎 埚堝 埼碕 堑塹 堕墮 塆壪 墙墻牆 壮壯 声聲 壳殻殼 壶壺 壸壼 处處
    备備 复復複覆 够夠 头頭 夸誇 夹夾 夺奪 奁奩 奂奐 奋奮 奖奬獎 奥奧 奸姦 妆妝粧 妇婦 妈媽 妩嫵 妪嫗 妫媯嬀 姗姍 姜薑 姹奼 娄婁
    娅婭 娆嬈 娇嬌 娈孌 娘孃 娱娛 娲媧 娴嫺嫻 婳嫿 婴嬰 婵嬋 婶嬸 媪媼 媭嬃 嫒嬡 嫔嬪 嫱嬙 嬷嬤 孙孫 学學 孪孿 宁寧甯 宝寶 实實
    宠寵 审審 宪憲 宫宮 家傢 宽寬 宾賓 寝寢 对對 寻尋 导導 寿壽 将將 尔爾 尘塵 尝嘗嚐 尧堯 尴尷 尸屍 尽儘盡 局侷 层層 屃屓 屉屜
    届屆 属屬 屡屢 屦屨 屿嶼 岁嵗歲 岂豈 岖嶇 岗崗 岘峴 岚嵐 岛島 岩巖 岭嶺 岳嶽 岽崬 岿巋 峃嶨 峄嶧 峡峽 峣嶢 峤嶠 峥崢 峦巒 峰峯
    崂嶗 崃崍 崄嶮 崭嶄 嵘嶸 嵚嶔 嵝嶁 巅巔 巨鉅 巩鞏 巯巰 币幣 布佈 帅帥 师師 帏幃 帐帳 帘簾 帜幟 带帶 帧幀 席蓆 帮幫 帱幬 帻幘
    帼幗 幂冪 干乾幹榦 并並併 幸倖 广廣 庄莊 庆慶 床牀 庐廬 庑廡 库庫 应應 庙廟 庞龐 废廢 庵菴 庼廎 廪廩 开開 异異 弃棄 弑弒 张張
    弥彌瀰 弦絃 弪弳 弯彎 弹彈 强強 归歸 当噹當 录彔錄録 彟彠 彦彥 彨彲 彩綵 彻徹 征徵 径徑 徕徠 御禦 忆憶 忏懺 志誌 忧憂 念唸
    忾愾 怀懷 态態 怂慫 怃憮 怄慪 怅悵 怆愴 怜憐 总總 怼懟 怿懌 恋戀 恒恆 恤卹 恳懇 恶噁惡 恸慟 恹懨 恺愷 恻惻 恼惱 恽惲 悦悅
    悫愨慤 悬懸 悭慳 悮悞 悯憫 惊驚 惧懼 惨慘 惩懲 惫憊 惬愜 惭慚 惮憚 惯慣 愈癒 愠慍 愤憤 愦憒 愿願 慑懾 慭憖 懑懣 懒懶 懔懍 戆戇
    戋戔 戏戲 戗戧 战戰 戚慼 戬戩 戯戱 户戶 才纔 扎紮 扑撲 托託 扣釦 执執 扩擴 扪捫 扫掃 扬揚 扰擾 折摺 抚撫 抛拋 抟摶 抠摳 抡掄
    抢搶 护護 报報 抬擡 抵牴 担擔 拐枴柺 拟擬 拢攏 拣揀 拥擁 拦攔 拧擰 拨撥 择擇 挂掛 挚摯 挛攣 挜掗 挝撾 挞撻 挟挾 挠撓 挡擋 挢撟
    挣掙 挤擠 挥揮 挦撏 挨捱 挲挱 挽輓 捆綑 捝挩 捞撈 损損 捡撿 换換 捣搗擣 据據 掳擄 掴摑 掷擲 掸撣 掺摻 掼摜 揽攬 揾搵 揿撳 搀攙
    搁擱 搂摟 搄揯 搅攪 搜蒐 携攜 摄攝 摅攄 摆擺襬 摇搖 摈擯 摊攤 撄攖 撑撐 撵攆 撷擷 撸擼 撺攛 擜㩵 擞擻 攒攢 敌敵 教敎 敚敓 敛斂
    敩斆 数數 斋齋 斓斕 斗鬥 斩斬 断斷 旋鏇 旗旂 无無 既旣 旧舊 时時 旷曠 旸暘 昆崑 昙曇 昼晝 昽曨 显顯 晋晉 晒曬 晓曉 晔曄 晕暈
    晖暉 暂暫 暗闇 暧曖 曲麯麴 术朮術 朱硃 朴樸 机機 杀殺 杂雜 权權 杆桿 杠槓 条條 来來 杨楊 杩榪 杯盃 杰傑 松鬆 板闆 极極 构構
    枞樅 枢樞 枣棗 枥櫪 枧梘 枨棖 枪槍 枫楓 枭梟 柜櫃 柠檸 查査 柽檉 栀梔 栅柵 标標 栈棧 栉櫛 栊櫳 栋棟 栌櫨 栎櫟 栏欄 树樹 栖棲
    栗慄 样樣 核覈 栾欒 桠椏 桡橈 桢楨 档檔 桤榿 桥橋 桦樺 桧檜 桨槳 桩樁 桪樳 梁樑 梦夢 梼檮 梾棶 梿槤 检檢 棁梲 棂欞 棋棊 棱稜
    椁槨 椝槼 椟櫝 椠槧 椢槶 椤欏 椫樿 椭橢 椮槮 楼樓 榄欖 榅榲 榇櫬 榈櫚 榉櫸欅 榝樧 槚檟 槛檻 槟檳 槠櫧 横橫 樯檣 樱櫻 橥櫫 橱櫥
    橹櫓 橼櫞 檐簷 檩檁 欢歡 欤歟 欧歐 欲慾 歼殲 殁歿 殇殤 残殘 殒殞 殓殮 殚殫 殡殯 殴毆 毁毀燬譭 毂轂 毕畢 毙斃 毡氈 毵毿 氇氌
    气氣 氢氫 氩氬 氲氳 汇匯彙滙 汉漢 污汙 汤湯 汹洶 沄澐 沈瀋 沟溝 没沒 沣灃 沤漚 沥瀝 沦淪 沧滄 沨渢 沩溈潙 沪滬 沾霑 泄洩
    泛氾汎 泞濘 注註 泪淚 泶澩 泷瀧 泸瀘 泺濼 泻瀉 泼潑 泽澤 泾涇 洁潔 洒灑 洼窪 浃浹 浅淺 浆漿 浇澆 浈湞 浉溮 浊濁 测測 浍澮 济濟
    浏瀏 浐滻 浑渾 浒滸 浓濃 浔潯 浕濜 涂塗 涌湧 涚涗 涛濤 涝澇 涞淶 涟漣 涠潿 涡渦 涢溳 涣渙 涤滌 润潤 涧澗 涨漲 涩澀 淀澱 渊淵
    渌淥 渍漬 渎瀆 渐漸 渑澠 渔漁 渗滲 温溫 游遊 湾灣 湿溼濕 溁濚 溃潰 溅濺 溆漵 溇漊 溯泝遡 滗潷 滚滾 滞滯 滟灧灩 滠灄 满滿 滢瀅
    滤濾 滥濫 滦灤 滨濱 滩灘 滪澦 漓灕 潀潨 潆瀠 潇瀟 潋瀲 潍濰 潜潛 潴瀦 澛瀂 澜瀾 濑瀨 濒瀕 灏灝 灭滅 灯燈 灵靈 灶竈 灾災 灿燦
    炀煬 炉爐 炖燉 炜煒 炝熗 点點 炼煉鍊 炽熾 烁爍 烂爛 烃烴 烛燭 烟煙菸 烦煩 烧燒 烨燁 烩燴 烫燙 烬燼 热熱 焕煥 焖燜 焘燾 煴熅
    熏燻 爱愛 爷爺 牍牘 牦氂犛 牵牽 牺犧 犊犢 状狀 犷獷 犸獁 犹猶 狈狽 狝獮 狞獰 独獨 狭狹 狮獅 狯獪 狰猙 狱獄 狲猻 猃獫 猎獵 猕獼
    猡玀 猪豬 猫貓 猬蝟 献獻 獭獺 玑璣 玙璵 玚瑒 玛瑪 玩翫 玮瑋 环環 现現 玱瑲 玺璽 珐琺 珑瓏 珰璫 珲琿 琎璡 琏璉 琐瑣 琼瓊 瑶瑤
    瑷璦 瑸璸 璇璿 璎瓔 瓒瓚 瓮甕 瓯甌 电電 画畫畵 畅暢 畴疇 疖癤 疗療 疟瘧 疠癘 疡瘍 疬癧 疭瘲 疮瘡 疯瘋 疱皰 疴痾 症癥 痈癰 痉痙
    痒癢 痖瘂 痨癆 痪瘓 痫癇 痴癡 痹痺 瘅癉 瘆瘮 瘗瘞 瘘瘺瘻 瘪癟 瘫癱 瘾癮 瘿癭 癞癩 癣癬 癫癲 皂皁 皑皚 皱皺 皲皸 盏盞 盐鹽 监監
    盖蓋 盗盜 盘盤 眍瞘 真眞 眦眥 眬矓 着著 睁睜 睐睞 睑瞼 睪睾 瞆瞶 瞒瞞 瞩矚 矩榘 矫矯 矶磯 矾礬 矿礦 砀碭 码碼 砖磚 砗硨 砚硯
    砜碸 砺礪 砻礱 砾礫 础礎 硁硜 硕碩 硖硤 硗磽 硙磑 硚礄 确確 硵磠 硷礆 碍礙 碛磧 碜磣 碱鹼 礼禮 祃禡 祎禕 祢禰 祯禎 祷禱 祸禍
    禀稟 禄祿 禅禪 离離 私俬 秃禿 秆稈 秋鞦 种種 秘祕 积積 称稱 秽穢 秾穠 税稅 稣穌 稳穩 穑穡 穞穭 穷窮 窃竊 窍竅 窎窵 窑窯 窜竄
    窝窩 窥窺 窦竇 窭窶 竖竪豎 竞競 笃篤 笋筍 笔筆 笕筧 笺箋 笼籠 笾籩 筑築 筚篳 筛篩 筜簹 筝箏 筹籌 筼篔 签簽籤 筿篠 简簡 箓籙
    箦簀 箧篋 箨籜 箩籮 箪簞 箫簫 篑簣 篓簍 篮籃 篯籛 篱籬 簖籪 籁籟 籴糴 类類 籼秈 粜糶 粝糲 粤粵 粪糞 粮糧 粽糉糭 糁糝 糇餱 糊餬
    糍餈 糖醣 系係繫 紧緊 累纍 絷縶 纟糹 纠糾 纡紆 红紅 纣紂 纤縴纖 纥紇 约約 级級 纨紈 纩纊 纪紀 纫紉 纬緯 纭紜 纮紘 纯純 纰紕
    纱紗 纲綱 纳納 纴紝 纵縱 纶綸 纷紛 纸紙 纹紋 纺紡 纻紵 纼紖 纽紐 纾紓 线綫線 绀紺 绁紲 绂紱 练練 组組 绅紳 细細 织織 终終 绉縐
    绊絆 绋紼 绌絀 绍紹 绎繹 经經 绐紿 绑綁 绒絨 结結 绔絝 绕繞 绖絰 绗絎 绘繪 给給 绚絢 绛絳 络絡 绝絕絶 绞絞 统統 绠綆 绡綃 绢絹
    绣綉繡 绤綌 绥綏 绦絛縧 继繼 绨綈 绩績 绪緒 绫綾 绬緓 续續 绮綺 绯緋 绰綽 绱緔鞝 绲緄 绳繩 维維 绵綿 绶綬 绷綳繃 绸綢 绹綯
    绺綹 绻綣 综綜 绽綻 绾綰 绿綠緑 缀綴 缁緇 缂緙 缃緗 缄緘 缅緬 缆纜 缇緹 缈緲 缉緝 缊緼縕 缋繢 缌緦 缍綞 缎緞 缏緶 缑緱 缒縋
    缓緩 缔締 缕縷 编編 缗緡 缘緣 缙縉 缚縛 缛縟 缜縝 缝縫 缞縗 缟縞 缠纏 缡縭 缢縊 缣縑 缤繽 缥縹 缦縵 缧縲 缨纓 缩縮 缪繆 缫繅
    缬纈 缭繚 缮繕 缯繒 缰繮韁 缱繾 缲繰 缳繯 缴繳 缵纘 罂罌 网網 罗羅 罚罰 罢罷 罴羆 羁羈 羟羥 羡羨 群羣 翘翹 翙翽 翚翬 耢耮 耧耬
    耸聳 耻恥 聂聶 聋聾 职職 聍聹 联聯 聩聵 聪聰 肃肅 肠腸 肤膚 肮骯 肴餚 肾腎 肿腫 胀脹 胁脅 胄冑 胆膽 胜勝 胡衚鬍 胧朧 胨腖 胪臚
    胫脛 胶膠 脉脈 脍膾 脏臟髒 脐臍 脑腦 脓膿 脔臠 脚腳 脱脫 脶腡 脸臉 腊臘 腌醃 腘膕 腭顎颚齶 腻膩 腼靦 腽膃 腾騰 膑臏 膻羶 臜臢
    致緻 舆輿 舍捨 舣艤 舰艦 舱艙 舻艫 艰艱 艳艷豔 艺藝 节節 芈羋 芗薌 芜蕪 芦蘆 芸蕓 苁蓯 苇葦 苈藶 苋莧 苌萇 苍蒼 苎苧薴
    苏囌甦蘇 苔薹 苹蘋 范範 茎莖 茏蘢 茑蔦 茔塋 茕煢 茧繭 荆荊 荐薦 荙薘 荚莢 荛蕘 荜蓽 荝萴 荞蕎 荟薈 荠薺 荡盪蕩 荣榮 荤葷 荥滎
    荦犖 荧熒 荨蕁 荩藎 荪蓀 荫廕蔭 荬蕒 荭葒 荮葤 药葯藥 莅蒞 莱萊 莲蓮 莳蒔 莴萵 莶薟 获獲穫 莸蕕 莹瑩 莺鶯 莼蒓蓴 萚蘀 萝蘿
    萤螢 营營 萦縈 萧蕭 萨薩 葱蔥 蒀蒕 蒇蕆 蒉蕢 蒋蔣 蒌蔞 蒍蔿 蒏醟 蒙懞濛矇 蓑簑 蓝藍 蓟薊 蓠蘺 蓣蕷 蓥鎣 蓦驀 蔂虆 蔑衊 蔷薔
    蔹蘞 蔺藺 蔼藹 蕰薀 蕲蘄 蕴藴蘊 薮藪 藓蘚 蘖櫱 虏虜 虑慮 虚虛 虫蟲 虬虯 虮蟣 虱蝨 虽雖 虾蝦 虿蠆 蚀蝕 蚁蟻 蚂螞 蚃蠁 蚕蠶 蚝蠔
    蚬蜆 蛊蠱 蛎蠣 蛏蟶 蛮蠻 蛰蟄 蛱蛺 蛲蟯 蛳螄 蛴蠐 蜕蛻 蜗蝸 蜡蠟 蝇蠅 蝈蟈 蝉蟬 蝎蠍 蝼螻 蝾蠑 螀螿 螨蟎 蟏蠨 衅釁 衔銜 补補
    表錶 衬襯 衮袞 袄襖 袅嫋裊 袆褘 袜襪 袭襲 袯襏 装裝 裆襠 裈褌 裢褳 裣襝 裤褲 裥襇襉 褛褸 褴襤 襕襴 见見 观觀 觃覎 规規 觅覓
    视視 觇覘 览覽 觉覺 觊覬 觋覡 觌覿 觍覥 觎覦 觏覯 觐覲 觑覷 觞觴 触觸 觯觶 訚誾 詟讋 誉譽 誊謄 讠訁 计計 订訂 讣訃 认認 讥譏
    讦訐 讧訌 讨討 让讓 讪訕 讫訖 训訓 议議 讯訊 记記 讱訒 讲講 讳諱 讴謳 讵詎 讶訝 讷訥 许許 讹訛 论論 讻訩 讼訟 讽諷 设設 访訪
    诀訣 证証證 诂詁 诃訶 评評 诅詛 识識 诇詗 诈詐 诉訴 诊診 诋詆 诌謅 词詞 诎詘 诏詔 诐詖 译譯 诒詒 诓誆 诔誄 试試 诖詿 诗詩 诘詰
    诙詼 诚誠 诛誅 诜詵 话話 诞誕 诟詬 诠詮 诡詭 询詢 诣詣 诤諍 该該 详詳 诧詫 诨諢 诩詡 诪譸 诫誡 诬誣 语語 诮誚 误誤 诰誥 诱誘
    诲誨 诳誑 说說説 诵誦 诶誒 请請 诸諸 诹諏 诺諾 读讀 诼諑 诽誹 课課 诿諉 谀諛 谁誰 谂諗 调調 谄諂 谅諒 谆諄 谇誶 谈談 谉讅 谊誼
    谋謀 谌諶 谍諜 谎謊 谏諫 谐諧 谑謔 谒謁 谓謂 谔諤 谕諭 谖諼 谗讒 谙諳 谚諺 谛諦 谜謎 谝諞 谞諝 谟謨 谠讜 谡謖 谢謝 谣謠謡 谤謗
    谥諡謚 谦謙 谧謐 谨謹 谩謾 谪謫 谫謭譾 谬謬 谭譚 谮譖 谯譙 谰讕 谱譜 谲譎 谳讞 谴譴 谵譫 谶讖 谷穀 豮豶 贝貝 贞貞 负負 贠貟
    贡貢 财財 责責 贤賢 败敗 账賬 货貨 质質 贩販 贪貪 贫貧 贬貶 购購 贮貯 贯貫 贰貳 贱賤 贲賁 贳貰 贴貼 贵貴 贶貺 贷貸 贸貿 费費
    贺賀 贻貽 贼賊 贽贄 贾賈 贿賄 赀貲 赁賃 赂賂 赃贓贜 资資 赅賅 赆贐 赇賕 赈賑 赉賚 赊賒 赋賦 赌賭 赍賫齎 赎贖 赏賞 赐賜 赑贔
    赒賙 赓賡 赔賠 赕賧 赖賴 赗賵 赘贅 赙賻 赚賺 赛賽 赜賾 赝贋贗 赞讚贊 赟贇 赠贈 赡贍 赢贏 赣贛 赪赬 赵趙 赶趕 趋趨 趱趲 趸躉
    跃躍 跄蹌 跖蹠 跞躒 践踐 跶躂 跷蹺 跸蹕 跹躚 跻躋 踊踴 踌躊 踪蹤 踬躓 踯躑 蹑躡 蹒蹣 蹰躕 蹿躥 躏躪 躜躦 躯軀 车車 轧軋 轨軌
    轩軒 轪軑 轫軔 转轉 轭軛 轮輪 软軟 轰轟 轱軲 轲軻 轳轤 轴軸 轵軹 轶軼 轷軤 轸軫 轹轢 轺軺 轻輕 轼軾 载載 轾輊 轿轎 辀輈 辁輇
    辂輅 较較 辄輒 辅輔 辆輛 辇輦 辈輩 辉輝 辊輥 辋輞 辌輬 辍輟 辎輜 辏輳 辐輻 辑輯 辒輼轀 输輸 辔轡 辕轅 辖轄 辗輾 辘轆 辙轍 辚轔
    辞辭 辟闢 辩辯 辫辮 边邊 辽遼 达達 迁遷 过過 迈邁 运運 还還 这這 进進 远遠 违違 连連 迟遲 迩邇 迳逕 迹跡蹟 适適 选選 逊遜 递遞
    逦邐 逻邏 逾踰 遗遺 遥遙 邓鄧 邝鄺 邬鄔 邮郵 邹鄒 邺鄴 邻鄰 郁鬱 郏郟 郐鄶 郑鄭 郓鄆 郦酈 郧鄖 郸鄲 酂酇 酝醖醞 酦醱 酱醬 酸痠
    酽釅 酾釃 酿釀 采埰寀採 释釋 里裏裡 鉴鑑鑒 銮鑾 錾鏨 钅釒 钆釓 钇釔 针針鍼 钉釘 钊釗 钋釙 钌釕 钍釷 钎釺 钏釧 钐釤 钑鈒 钒釩
    钓釣 钔鍆 钕釹 钖鍚 钗釵 钘鈃 钙鈣 钚鈈 钛鈦 钝鈍 钞鈔 钟鈡鍾鐘 钠鈉 钡鋇 钢鋼 钣鈑 钤鈐 钥鈅鑰 钦欽 钧鈞 钨鎢 钩鈎鉤 钪鈧
    钫鈁鍅 钬鈥 钭鈄 钮鈕 钯鈀 钰鈺 钱錢 钲鉦 钳鉗 钴鈷 钵缽鉢 钶鈳 钷鉕 钸鈽 钹鈸 钺鉞 钻鉆鑽 钼鉬 钽鉭 钾鉀 钿鈿 铀鈾 铁鐵 铂鉑
    铃鈴 铄鑠 铅鉛 铆鉚 铇鉋 铈鈰 铉鉉 铊鉈 铋鉍 铌鈮 铍鈹 铎鐸 铏鉶 铐銬 铑銠 铒鉺 铓鋩 铔錏 铕銪 铖鋮 铗鋏 铘鋣 铙鐃 铚銍 铛鐺
    铜銅 铝鋁 铞銱 铟銦 铠鎧 铡鍘 铢銖 铣銑 铤鋌 铥銩 铦銛 铧鏵 铨銓 铩鎩 铪鉿 铫銚 铬鉻 铭銘 铮錚 铯銫 铰鉸 铱銥 铲剷鏟 铳銃 铴鐋
    铵銨 银銀 铷銣 铸鑄 铹鐒 铺鋪 铻鋙 铼錸 铽鋱 链鏈 铿鏗 销銷 锁鎖 锂鋰 锃鋥 锄鋤 锅鍋 锆鋯 锇鋨 锈銹鏽 锉銼 锊鋝 锋鋒 锌鋅 锍鋶
    锎鐦 锏鐧 锐銳鋭 锑銻 锒鋃 锓鋟 锔鋦 锕錒 锖錆 锗鍺 锘鍩 错錯 锚錨 锛錛 锜錡 锝鍀 锞錁 锟錕 锠錩 锡錫 锢錮 锣鑼 锤錘鎚 锥錐
    锦錦 锧鑕 锨鍁 锩錈 锪鍃 锫鉳錇 锬錟 锭錠 键鍵 锯鋸 锰錳 锱錙 锲鍥 锳鍈 锴鍇 锵鏘 锶鍶 锷鍔 锸鍤 锹鍬 锻鍛 锼鎪 锽鍠 锾鍰 锿鎄
    镀鍍 镁鎂 镂鏤 镃鎡 镄鐨 镅鎇 镆鏌 镇鎭鎮 镈鎛 镉鎘 镊鑷 镋鎲钂 镌鎸鐫 镍鎳 镎錼鎿 镏鎦 镐鎬 镑鎊 镒鎰 镓鎵 镔鑌 镕鎔 镖鏢
    镗鏜 镘鏝 镙鏍 镚鏰 镛鏞 镜鏡 镝鏑 镞鏃 镠鏐 镡鐔 镢鐝钁 镣鐐 镤鏷 镥鑥 镦鐓 镧鑭 镨鐠 镩鑹 镪鏹 镫鐙 镬鑊 镭鐳 镮鐶 镯鐲
    镰鎌鐮 镱鐿 镲鑔 镳鑣 镴鑞 镵鑱 镶鑲 长長 门門 闩閂 闪閃 闫閆 闬閈 闭閉 问問 闯闖 闰閏 闱闈 闲閑閒 闳閎 间間 闵閔 闶閌 闷悶
    闸閘 闹鬧 闺閨 闻聞 闼闥 闽閩 闾閭 闿闓 阀閥 阁閣 阂閡 阃閫 阄鬮 阅閱閲 阆閬 阇闍 阈閾 阉閹 阊閶 阋鬩 阌閿 阍閽 阎閻 阏閼 阐闡
    阑闌 阒闃 阓闠 阔闊 阕闋 阖闔 阗闐 阘闒 阙闕 阚闞 阛闤 队隊 阳陽 阴陰 阵陣 阶階 际際 陆陸 陇隴 陈陳 陉陘 陕陝 陦隯 陧隉 陨隕
    险險 随隨 隐隱 隶隸 隽雋 难難 雇僱 雏雛 雕彫琱鵰 雠讎 雳靂 雾霧 霁霽 霉黴 霡霢 霭靄 靓靚 靔靝 静靜 面麪麫麵 靥靨 鞑韃 鞒鞽
    鞯韉 鞲韝 韦韋 韧韌 韨韍 韩韓 韪韙 韫韞 韬韜 韵韻 页頁 顶頂 顷頃 顸頇 项項 顺順 须須鬚 顼頊 顽頑 顾顧 顿頓 颀頎 颁頒 颂頌 颃頏
    预預 颅顱 领領 颇頗 颈頸 颉頡 颊頰 颋頲 颌頜 颍潁 颎熲 颏頦 颐頤 频頻 颒頮 颓頹頽 颔頷 颕頴 颖穎 颗顆 题題 颙顒 颛顓 颜顏顔
    额額 颞顳 颟顢 颠顛 颡顙 颢顥 颣纇 颤顫 颥顬 颦顰 颧顴 风風 飏颺 飐颭 飑颮 飒颯 飓颶 飔颸 飕颼 飖颻 飗飀 飘飄 飙飆 飚飈 飞飛
    飧飱 飨饗 餍饜 饣飠 饤飣 饥飢饑 饦飥 饧餳 饨飩 饩餼 饪飪 饫飫 饬飭 饭飯 饮飲 饯餞 饰飾 饱飽 饲飼 饳飿 饴飴 饵餌 饶饒 饷餉 饸餄
    饹餎 饺餃 饻餏 饼餅 饽餑 饾餖 饿餓 馁餒 馂餕 馃餜 馄餛 馅餡 馆舘館 馇餷 馈饋 馉餶 馊餿 馋饞 馌饁 馍饃 馎餺 馏餾 馐饈 馑饉 馒饅
    馓饊 馔饌 馕饢 马馬 驭馭 驮馱 驯馴 驰馳 驱驅 驲馹 驳駁 驴驢 驵駔 驶駛 驷駟 驸駙 驹駒 驺騶 驻駐 驼駝 驽駑 驾駕 驿驛 骀駘 骁驍
    骂罵駡 骃駰 骄驕 骅驊 骆駱 骇駭 骈駢 骉驫 骊驪 骋騁 验驗 骍騂 骎駸 骏駿 骐騏 骑騎 骒騍 骓騅 骔騌 骕驌 骖驂 骗騙 骘騭 骙騤 骚騷
    骛騖 骜驁 骝騮 骞騫 骟騸 骠驃 骡騾 骢驄 骣驏 骤驟 骥驥 骦驦 骧驤 髅髏 髋髖 髌髕 鬓鬢 鬶鬹 魇魘 魉魎 鱼魚 鱽魛 鱾魢 鱿魷 鲀魨
    鲁魯 鲂魴 鲃䰾 鲄魺 鲅鮁 鲆鮃 鲇鮎鯰鲶 鲈鱸 鲉鮋 鲊鮓 鲋鮒 鲌鮊 鲍鮑 鲎鱟 鲏鮍 鲐鮐 鲑鮭 鲒鮚 鲓鮳 鲔鮪 鲕鮞 鲖鮦 鲗鰂 鲘鮜
    鲙鱠 鲚鱭 鲛鮫 鲜鮮 鲝鮺 鲞鮝鯗 鲟鱘 鲠鯁 鲡鱺 鲢鰱 鲣鰹 鲤鯉 鲥鰣 鲦鰷 鲧鯀 鲨鯊 鲩鯇 鲪鮶 鲫鯽 鲬鯒 鲭鯖 鲮鯪 鲯鯕 鲰鯫 鲱鯡
    鲲鯤 鲳鯧 鲴鯝 鲵鯢 鲷鯛 鲸鯨 鲹鰺 鲺鯴 鲻鯔 鲼鱝 鲽鰈 鲾鰏 鲿鱨 鳀鯷 鳁鰛鰮 鳂鰃 鳃鰓 鳄鰐鱷 鳅鰍 鳆鰒 鳇鰉 鳈鰁 鳉鱂 鳊鯿
    鳋鰠 鳌鰲 鳍鰭 鳎鰨 鳏鰥 鳐鰩 鳑鰟 鳒鰜 鳓鰳 鳔鰾 鳕鱈 鳖鱉 鳗鰻 鳘鰵 鳙鱅 鳚䲁 鳛鰼 鳜鱖 鳝鱔 鳞鱗 鳟鱒 鳠鱯 鳡鱤 鳢鱧 鳣鱣
    鳤䲘 鸟鳥 鸠鳩 鸡雞鷄 鸢鳶 鸣鳴 鸤鳲 鸥鷗 鸦鴉 鸧鶬 鸨鴇 鸩鴆 鸪鴣 鸫鶇 鸬鸕 鸭鴨 鸮鴞 鸯鴦 鸰鴒 鸱鴟 鸲鴝 鸳鴛 鸴鷽 鸵鴕 鸶鷥
    鸷鷙 鸸鴯 鸹鴰 鸺鵂 鸻鴴 鸼鵃 鸽鴿 鸾鸞 鸿鴻 鹀鵐 鹁鵓 鹂鸝 鹃鵑 鹄鵠 鹅鵝 鹆鵒 鹇鷳鷴 鹈鵜 鹉鵡 鹊鵲 鹋鶓 鹌鵪 鹍鵾 鹎鵯 鹏鵬
    鹐鵮 鹑鶉 鹒鶊 鹓鵷 鹔鷫 鹕鶘 鹖鶡 鹗鶚 鹘鶻 鹙鶖 鹚鶿鷀 鹛鶥 鹜鶩 鹝鷊 鹞鷂 鹟鶲 鹠鶹 鹡鶺 鹢鷁 鹣鶼 鹤鶴 鹥鷖 鹦鸚 鹧鷓 鹨鷚
    鹩鷯 鹪鷦 鹫鷲 鹬鷸 鹭鷺 鹮䴉 鹯鸇 鹰鷹 鹱鸌 鹲鸏 鹳鸛 鹴鸘 鹾鹺 麦麥 麸麩 黄黃 黉黌 黡黶 黩黷 黪黲 黾黽 鼋黿 鼌鼂 鼍鼉 鼹鼴
    齐齊 齑齏 齿齒 龀齔 龁齕 龂齗 龃齟 龄齡 龅齙 龆齠 龇齜 龈齦 龉齬 龊齪 龋齲 龌齷 龙龍 龚龔 龛龕 龟龜 鿎䃮 鿏䥑 鿒鿓 鿔鎶
"""
FORMS = str.maketrans({form: group[0] for group in _GROUPS.split() for form in group[1:]})
